//! Cases made from dimensions: targets, rules, peers, ports, changes and contradictions, alone and
//! in pairs. The dimensions are those of the cyclonus test generator.

use serde_json::{Value, json};

use super::{any_of, ns, pod};
use crate::scene::{Case, Scene};

/// The whole list.
pub fn generated_cases() -> Vec<Case> {
    let lists = [targets(), rules(), peers(), ports(), changes(), contradictions()];
    lists.into_iter().flatten().collect()
}

const DIRECTIONS: [&str; 2] = ["ingress", "egress"];

/// A policy of `x/a` with one rule in each direction, of which the named parts are replaced.
struct Written {
    namespace: &'static str,
    pods: Value,
    ingress: Value,
    egress: Value,
}

impl Written {
    fn usual() -> Written {
        let peers = json!([{ "podSelector": any_of("pod", "In", &["b", "c"]),
                             "namespaceSelector": any_of("ns", "In", &["x", "y"]) }]);
        let ports = json!([{ "port": 80, "protocol": "TCP" }]);
        Written {
            namespace: "x",
            pods: pod("a"),
            ingress: json!([{ "from": peers, "ports": ports }]),
            egress: json!([{ "to": peers, "ports": ports }]),
        }
    }

    fn peers(mut self, direction: &str, peers: Value) -> Written {
        match direction {
            "ingress" => self.ingress[0]["from"] = peers,
            _ => self.egress[0]["to"] = peers,
        }
        self
    }

    fn ports(mut self, direction: &str, ports: Value) -> Written {
        match direction {
            "ingress" => self.ingress[0]["ports"] = ports,
            _ => self.egress[0]["ports"] = ports,
        }
        self
    }

    fn rules(mut self, direction: &str, rules: Value) -> Written {
        match direction {
            "ingress" => self.ingress = rules,
            _ => self.egress = rules,
        }
        self
    }

    fn on(&self, scene: Scene) -> Scene {
        let types = json!(["Ingress", "Egress"]);
        let (ingress, egress) = (&self.ingress, &self.egress);
        let spec = json!({ "podSelector": self.pods, "policyTypes": types,
                           "ingress": ingress, "egress": egress });
        scene.policy(self.namespace, "base", spec)
    }

    fn case(&self, name: String) -> Case {
        Case::new(name, self.on(Scene::nine_pods()))
    }
}

fn targets() -> Vec<Case> {
    let namespaces = ["x", "y", "z"].map(|namespace| {
        Written { namespace, ..Written::usual() }.case(format!("target: namespace {namespace}"))
    });
    let selectors =
        [("everyone", json!({})), ("a", pod("a")), ("a or b", any_of("pod", "In", &["a", "b"]))];
    let selectors = selectors.map(|(name, pods)| {
        Written { pods, ..Written::usual() }.case(format!("target: pods {name}"))
    });
    namespaces.into_iter().chain(selectors).collect()
}

fn rules() -> Vec<Case> {
    let lists = [("none", json!([])), ("one that allows everything", json!([{}]))];
    let each = DIRECTIONS.into_iter().flat_map(|direction| {
        lists.clone().map(|(name, rules)| {
            Written::usual().rules(direction, rules).case(format!("{direction} rules: {name}"))
        })
    });
    each.collect()
}

fn peers() -> Vec<Case> {
    let pods = [("any pods", json!({})), ("pods c", pod("c"))];
    let namespaces = [("all namespaces", json!({})), ("namespace x", ns("x"))];
    let mut known: Vec<(String, Value)> = Vec::new();
    for (name, selector) in &pods {
        known.push((format!("{name} here"), json!({ "podSelector": selector })));
    }
    for (where_, namespace) in &namespaces {
        known.push(((*where_).to_owned(), json!({ "namespaceSelector": namespace })));
        for (name, selector) in &pods {
            let both = json!({ "podSelector": selector, "namespaceSelector": namespace });
            known.push((format!("{name} of {where_}"), both));
        }
    }
    known.push(("a block".to_owned(), json!({ "ipBlock": { "cidr": "10.0.0.0/24" } })));
    let except = json!({ "cidr": "10.0.0.0/24", "except": ["10.0.0.0/28"] });
    known.push(("a block with a hole".to_owned(), json!({ "ipBlock": except })));
    let mut cases = Vec::new();
    for direction in DIRECTIONS {
        cases.push(
            Written::usual()
                .peers(direction, json!([]))
                .case(format!("{direction} peers: anybody")),
        );
        for (at, (name, peer)) in known.iter().enumerate() {
            let one = Written::usual().peers(direction, json!([peer]));
            cases.push(one.case(format!("{direction} peers: {name}")));
            for (other, second) in &known[at + 1..] {
                let two = Written::usual().peers(direction, json!([peer, second]));
                cases.push(two.case(format!("{direction} peers: {name}; {other}")));
            }
        }
    }
    cases
}

fn ports() -> Vec<Case> {
    let protocols = [None, Some("TCP"), Some("UDP"), Some("SCTP")];
    let numbers = [Value::Null, json!(81), json!("serve-81-tcp")];
    let mut known = Vec::new();
    for protocol in protocols {
        for number in &numbers {
            let name = format!("{} {number}", protocol.unwrap_or("no protocol"));
            known.push((name, json!({ "protocol": protocol, "port": number })));
        }
    }
    let range = json!({ "protocol": "TCP", "port": 79, "endPort": 81 });
    let mut cases = Vec::new();
    for direction in DIRECTIONS {
        let case = |name: String, ports| {
            Written::usual().ports(direction, ports).case(format!("{direction} ports: {name}"))
        };
        cases.push(case("all".to_owned(), json!([])));
        cases.push(case("a range".to_owned(), json!([range])));
        for (at, (name, port)) in known.iter().enumerate() {
            cases.push(case(name.clone(), json!([port])));
            for (other, second) in &known[at + 1..] {
                cases.push(case(format!("{name}; {other}"), json!([port, second])));
            }
        }
    }
    cases
}

fn changes() -> Vec<Case> {
    let base = |name: &str| Written::usual().case(name.to_owned());
    let udp = json!([{ "protocol": "UDP", "port": "serve-81-udp" }]);
    vec![
        base("a policy comes and goes").then(|s| s.without_policy("x", "base")),
        base("a policy changes").then(|s| Written::usual().ports("ingress", udp).on(s)),
        base("a namespace comes and goes")
            .then(|s| s.namespace("y-2", &[("ns", "y")]))
            .then(|s| s.pod("y-2", "a", &[("pod", "a")], "10.0.2.1"))
            .then(|s| s.pod("y-2", "b", &[("pod", "b")], "10.0.2.2"))
            .then(|s| s.without_namespace("y-2")),
        base("a pod comes and goes")
            .then(|s| s.pod("x", "d", &[("pod", "d")], "10.0.0.4"))
            .then(|s| s.without_pod("x", "d")),
        base("a pod's labels move it from one rule to another")
            .then(|s| s.relabel("y", "a", &[("pod", "c")]))
            .then(|s| s.relabel("x", "a", &[("pod", "b")])),
        relabelled_namespace(),
        relabelled_pod(),
    ]
}

fn marked() -> Value {
    json!({ "matchLabels": { "new": "yes" } })
}

fn relabelled_namespace() -> Case {
    let peers = json!([{ "namespaceSelector": marked() }]);
    Written::usual()
        .peers("ingress", peers)
        .case("a namespace is relabelled and back".to_owned())
        .then(|s| s.namespace("y", &[("ns", "y"), ("new", "yes")]))
        .then(|s| s.namespace("y", &[("ns", "y")]))
}

fn relabelled_pod() -> Case {
    let namespaces = any_of("ns", "In", &["y", "z"]);
    let peers = json!([{ "podSelector": marked(), "namespaceSelector": namespaces }]);
    Written::usual()
        .peers("ingress", peers)
        .case("a pod is relabelled and back".to_owned())
        .then(|s| s.relabel("y", "b", &[("pod", "b"), ("new", "yes")]))
        .then(|s| s.relabel("y", "b", &[("pod", "b")]))
}

/// Policies of one pod that say different things, in each direction.
fn contradictions() -> Vec<Case> {
    let sources = [
        ("nobody", json!([])),
        ("everybody", json!([{}])),
        ("all pods", json!([[{ "namespaceSelector": {} }]])),
        ("all addresses", json!([[{ "ipBlock": { "cidr": "0.0.0.0/0" } }]])),
        ("no pod", json!([[{ "namespaceSelector": { "matchLabels": { "never": "so" } } }]])),
        ("no address", json!([[{ "ipBlock": { "cidr": "0.0.0.0/31" } }]])),
    ];
    let mut cases = Vec::new();
    for direction in DIRECTIONS {
        for (at, (name, one)) in sources.iter().enumerate() {
            for (other, two) in &sources[at + 1..] {
                let first = says(Scene::nine_pods(), "first", direction, one);
                let both = says(first, "second", direction, two);
                cases.push(Case::new(format!("{direction}: {name} and {other}"), both));
            }
        }
    }
    let open = |direction| says(Scene::nine_pods(), "open", direction, &json!([{}]));
    cases.push(Case::new(
        "in open, out closed",
        says(open("ingress"), "shut", "egress", &json!([])),
    ));
    cases.push(Case::new(
        "out open, in closed",
        says(open("egress"), "shut", "ingress", &json!([])),
    ));
    cases
}

fn says(scene: Scene, name: &str, direction: &str, sources: &Value) -> Scene {
    let key = if direction == "ingress" { "from" } else { "to" };
    let rules = sources.as_array().into_iter().flatten().map(|peers| match peers {
        Value::Array(_) => json!({ key: peers }),
        _ => json!({}),
    });
    let rules: Vec<Value> = rules.collect();
    let types = if direction == "ingress" { "Ingress" } else { "Egress" };
    let spec = json!({ "podSelector": pod("b"), "policyTypes": [types], direction: rules });
    scene.policy("x", name, spec)
}
