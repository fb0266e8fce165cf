//! Converting twice is converting once, whatever is thrown in.

use atoll_convert::{Settings, convert};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

/// A value for a field, often one that fits.
fn field() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => prop::sample::select(vec![json!("acme"), json!("net-1"), json!("vpc"), json!("flat")]),
        1 => Just(Value::Null),
        1 => Just(json!(["net-1"])),
        1 => Just(json!([{"ip": "10.0.0.7", "subnet": "s"}])),
        1 => Just(json!({"replicas": 2})),
        1 => Just(json!("yes")),
        1 => Just(json!(42)),
    ]
}

fn fields(names: &'static [&'static str]) -> impl Strategy<Value = Value> {
    prop::collection::vec((prop::sample::select(names), field()), 0..4).prop_map(|pairs| {
        let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value));
        Value::Object(pairs.collect::<Map<_, _>>())
    })
}

fn object() -> impl Strategy<Value = Value> {
    let kinds = vec![
        ("v1", "Network"),
        ("arktos.futurewei.com/v1", "Network"),
        ("atoll.dev/v1alpha1", "Network"),
        ("v1", "Namespace"),
        ("v1", "Pod"),
        ("v1", "Service"),
    ];
    let metadata = fields(&["tenant", "namespace"]);
    let spec = fields(&[
        "network",
        "defaultNetwork",
        "nics",
        "extraNetworks",
        "type",
        "vpcID",
        "vpc-id",
        "other",
    ]);
    (prop::sample::select(kinds), metadata, spec).prop_map(
        |((version, kind), mut metadata, spec)| {
            metadata["name"] = "thing".into();
            json!({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
        },
    )
}

proptest! {
    #[test]
    fn converting_twice_is_converting_once(objects in prop::collection::vec(object(), 1..4)) {
        let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
        if let Ok(once) = convert(&texts.join("\n"), &Settings::default()) {
            let twice = convert(&once.yaml(), &Settings::default()).unwrap();
            prop_assert_eq!(twice.yaml(), once.yaml());
            prop_assert_eq!(twice.objects(), once.objects());
            prop_assert_eq!(&twice.notes, &vec![]);
            let json = convert(&once.json(), &Settings::default()).unwrap();
            prop_assert_eq!(json.objects(), once.objects());
        }
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-a-z{}\\[\\]:,&*!|>%#'\" \n]{0,80}") {
        let _ = convert(&text, &Settings::default());
    }
}
