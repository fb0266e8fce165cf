//! Reading Kubernetes' protobuf. kubectl sends objects that it makes itself (`create namespace`,
//! `create configmap`, `create deployment`, …) in this form only, so the kinds behind those
//! commands can be read; answers are always JSON.
//!
//! Rule: a field that the tables below do not know is refused, never dropped.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// What every body in this form begins with.
const MAGIC: &[u8] = b"k8s\0";

/// How a field is written on the wire and shown in JSON.
#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Flag,
    /// A number whose zero means that it was not given.
    Number,
    /// A number whose zero counts.
    Count,
    /// Seconds since the epoch.
    Time,
    IntOrString,
    TextMap,
    BytesMap,
    Quantities,
    One(Message),
    Many(Message),
}

/// A message: its name, and number, name and kind of its fields.
type Fields = (&'static str, &'static [(u64, &'static str, Kind)]);
type Message = &'static Fields;

use Kind::{
    BytesMap, Count, Flag, IntOrString, Many, Number, One, Quantities, Text, TextMap, Texts, Time,
};

static OWNER: Fields = (
    "OwnerReference",
    &[
        (1, "kind", Text),
        (3, "name", Text),
        (4, "uid", Text),
        (5, "apiVersion", Text),
        (6, "controller", Flag),
        (7, "blockOwnerDeletion", Flag),
    ],
);
static METADATA: Fields = (
    "ObjectMeta",
    &[
        (1, "name", Text),
        (2, "generateName", Text),
        (3, "namespace", Text),
        (4, "selfLink", Text),
        (5, "uid", Text),
        (6, "resourceVersion", Text),
        (7, "generation", Number),
        (8, "creationTimestamp", Time),
        (9, "deletionTimestamp", Time),
        (10, "deletionGracePeriodSeconds", Count),
        (11, "labels", TextMap),
        (12, "annotations", TextMap),
        (13, "ownerReferences", Many(&OWNER)),
        (14, "finalizers", Texts),
    ],
);
static NAMESPACE_SPEC: Fields = ("NamespaceSpec", &[(1, "finalizers", Texts)]);
static NAMESPACE: Fields =
    ("Namespace", &[(1, "metadata", One(&METADATA)), (2, "spec", One(&NAMESPACE_SPEC))]);
static CONFIG_MAP: Fields = (
    "ConfigMap",
    &[
        (1, "metadata", One(&METADATA)),
        (2, "data", TextMap),
        (3, "binaryData", BytesMap),
        (4, "immutable", Flag),
    ],
);
static SECRET: Fields = (
    "Secret",
    &[
        (1, "metadata", One(&METADATA)),
        (2, "data", BytesMap),
        (3, "type", Text),
        (4, "stringData", TextMap),
        (5, "immutable", Flag),
    ],
);
static LOCAL_REFERENCE: Fields = ("LocalObjectReference", &[(1, "name", Text)]);
static SERVICE_ACCOUNT: Fields = (
    "ServiceAccount",
    &[
        (1, "metadata", One(&METADATA)),
        (3, "imagePullSecrets", Many(&LOCAL_REFERENCE)),
        (4, "automountServiceAccountToken", Flag),
    ],
);
static SERVICE_PORT: Fields = (
    "ServicePort",
    &[
        (1, "name", Text),
        (2, "protocol", Text),
        (3, "port", Number),
        (4, "targetPort", IntOrString),
        (5, "nodePort", Number),
        (6, "appProtocol", Text),
    ],
);
static SERVICE_SPEC: Fields = (
    "ServiceSpec",
    &[
        (1, "ports", Many(&SERVICE_PORT)),
        (2, "selector", TextMap),
        (3, "clusterIP", Text),
        (4, "type", Text),
        (5, "externalIPs", Texts),
        (7, "sessionAffinity", Text),
        (8, "loadBalancerIP", Text),
        (10, "externalName", Text),
        (11, "externalTrafficPolicy", Text),
        (12, "healthCheckNodePort", Number),
        (13, "publishNotReadyAddresses", Flag),
        (17, "ipFamilyPolicy", Text),
        (18, "clusterIPs", Texts),
        (19, "ipFamilies", Texts),
        (22, "internalTrafficPolicy", Text),
    ],
);
static SERVICE: Fields =
    ("Service", &[(1, "metadata", One(&METADATA)), (2, "spec", One(&SERVICE_SPEC))]);
static SELECTOR: Fields = ("LabelSelector", &[(1, "matchLabels", TextMap)]);
static CONTAINER_PORT: Fields = (
    "ContainerPort",
    &[
        (1, "name", Text),
        (2, "hostPort", Number),
        (3, "containerPort", Number),
        (4, "protocol", Text),
        (5, "hostIP", Text),
    ],
);
static RESOURCES: Fields =
    ("ResourceRequirements", &[(1, "limits", Quantities), (2, "requests", Quantities)]);
static ENVIRONMENT: Fields = ("EnvVar", &[(1, "name", Text), (2, "value", Text)]);
static CONTAINER: Fields = (
    "Container",
    &[
        (1, "name", Text),
        (2, "image", Text),
        (3, "command", Texts),
        (4, "args", Texts),
        (5, "workingDir", Text),
        (6, "ports", Many(&CONTAINER_PORT)),
        (7, "env", Many(&ENVIRONMENT)),
        (8, "resources", One(&RESOURCES)),
        (13, "terminationMessagePath", Text),
        (14, "imagePullPolicy", Text),
        (16, "stdin", Flag),
        (17, "stdinOnce", Flag),
        (18, "tty", Flag),
        (20, "terminationMessagePolicy", Text),
    ],
);
static POD_SPEC: Fields = (
    "PodSpec",
    &[
        (2, "containers", Many(&CONTAINER)),
        (3, "restartPolicy", Text),
        (4, "terminationGracePeriodSeconds", Count),
        (6, "dnsPolicy", Text),
        (7, "nodeSelector", TextMap),
        (8, "serviceAccountName", Text),
        (9, "serviceAccount", Text),
        (10, "nodeName", Text),
        (11, "hostNetwork", Flag),
        (12, "hostPID", Flag),
        (13, "hostIPC", Flag),
        (16, "hostname", Text),
        (17, "subdomain", Text),
        (19, "schedulerName", Text),
        (20, "initContainers", Many(&CONTAINER)),
        (24, "priorityClassName", Text),
    ],
);
static POD_TEMPLATE: Fields =
    ("PodTemplateSpec", &[(1, "metadata", One(&METADATA)), (2, "spec", One(&POD_SPEC))]);
static DEPLOYMENT_STRATEGY: Fields = ("DeploymentStrategy", &[(1, "type", Text)]);
static DEPLOYMENT_SPEC: Fields = (
    "DeploymentSpec",
    &[
        (1, "replicas", Count),
        (2, "selector", One(&SELECTOR)),
        (3, "template", One(&POD_TEMPLATE)),
        (4, "strategy", One(&DEPLOYMENT_STRATEGY)),
        (5, "minReadySeconds", Number),
        (6, "revisionHistoryLimit", Count),
        (7, "paused", Flag),
        (9, "progressDeadlineSeconds", Count),
    ],
);
static DEPLOYMENT: Fields =
    ("Deployment", &[(1, "metadata", One(&METADATA)), (2, "spec", One(&DEPLOYMENT_SPEC))]);
static PRECONDITIONS: Fields = ("Preconditions", &[(1, "uid", Text), (2, "resourceVersion", Text)]);
static DELETE_OPTIONS: Fields = (
    "DeleteOptions",
    &[
        (1, "gracePeriodSeconds", Count),
        (2, "preconditions", One(&PRECONDITIONS)),
        (3, "orphanDependents", Flag),
        (4, "propagationPolicy", Text),
        (5, "dryRun", Texts),
    ],
);

/// The object in the body, as JSON.
pub(super) fn read(body: &[u8]) -> Result<Value, String> {
    let envelope = body.strip_prefix(MAGIC).ok_or("it does not begin as it must")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in fields(envelope)? {
        match field {
            (1, Wire::Bytes(bytes)) => {
                for part in fields(bytes)? {
                    match part {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => return Err("its type has a field that is not known".to_owned()),
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let table = table(&kind).ok_or_else(|| format!("{kind} is read from JSON only"))?;
    let mut object = message(table, raw)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

fn table(kind: &str) -> Option<Message> {
    [&NAMESPACE, &CONFIG_MAP, &SECRET, &SERVICE_ACCOUNT, &SERVICE, &DEPLOYMENT, &DELETE_OPTIONS]
        .into_iter()
        .find(|table| table.0 == kind)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn number(bytes: &mut &[u8]) -> Result<u64, String> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or("it ends in the middle of a number")?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("it has a number that is too long".to_owned())
}

fn fields(mut bytes: &[u8]) -> Result<Vec<(u64, Wire<'_>)>, String> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = number(&mut bytes)?;
        let wire = match tag & 7 {
            0 => Wire::Number(number(&mut bytes)?),
            2 => {
                let length = usize::try_from(number(&mut bytes)?).unwrap_or(usize::MAX);
                let (inside, rest) =
                    bytes.split_at_checked(length).ok_or("it ends in the middle of a field")?;
                bytes = rest;
                Wire::Bytes(inside)
            }
            other => return Err(format!("it has a field of wire type {other}")),
        };
        found.push((tag >> 3, wire));
    }
    Ok(found)
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "it has text that is not UTF-8".to_owned())
}

/// The fields of a message. What is empty was not given: Go writes all plain fields.
fn message(table: Message, bytes: &[u8]) -> Result<Map<String, Value>, String> {
    let mut object = Map::new();
    for (tag, wire) in fields(bytes)? {
        let known = table.1.iter().find(|(number, _, _)| *number == tag);
        match (known, wire) {
            (Some((_, name, kind)), wire) => add(&mut object, name, *kind, wire)?,
            (None, Wire::Bytes([]) | Wire::Number(0)) => {}
            // The status of a new object is the server's.
            (None, Wire::Bytes(_)) if tag == 3 && table.1[0].1 == "metadata" => {}
            (None, _) => return Err(format!("field {tag} of {} is read from JSON only", table.0)),
        }
    }
    Ok(object)
}

fn add(
    object: &mut Map<String, Value>,
    name: &str,
    kind: Kind,
    wire: Wire<'_>,
) -> Result<(), String> {
    let value = match (kind, wire) {
        (Number, Wire::Number(0)) | (Flag, Wire::Number(0)) => return Ok(()),
        (Number | Count, Wire::Number(number)) => json!(number.cast_signed()),
        (Flag, Wire::Number(_)) => json!(true),
        (Text, Wire::Bytes([])) | (Time | One(_), Wire::Bytes([])) => return Ok(()),
        (Text, Wire::Bytes(bytes)) => json!(utf8(bytes)?),
        (Time, Wire::Bytes(bytes)) => time(bytes)?,
        (IntOrString, Wire::Bytes(bytes)) => int_or_string(bytes)?,
        (One(table), Wire::Bytes(bytes)) => Value::Object(message(table, bytes)?),
        (Texts, Wire::Bytes(bytes)) => return push(object, name, json!(utf8(bytes)?)),
        (Many(table), Wire::Bytes(bytes)) => {
            return push(object, name, Value::Object(message(table, bytes)?));
        }
        (TextMap | BytesMap | Quantities, Wire::Bytes(bytes)) => {
            let (key, value) = entry(kind, bytes)?;
            crate::object::child_mut(object, name).insert(key, value);
            return Ok(());
        }
        _ => return Err(format!("{name} has the wrong wire type")),
    };
    object.insert(name.to_owned(), value);
    Ok(())
}

fn push(object: &mut Map<String, Value>, name: &str, value: Value) -> Result<(), String> {
    match object.entry(name).or_insert_with(|| json!([])) {
        Value::Array(list) => list.push(value),
        _ => return Err(format!("{name} is no list")),
    }
    Ok(())
}

fn entry(kind: Kind, bytes: &[u8]) -> Result<(String, Value), String> {
    let (mut key, mut value) = (String::new(), &[][..]);
    for field in fields(bytes)? {
        match field {
            (1, Wire::Bytes(bytes)) => key = utf8(bytes)?,
            (2, Wire::Bytes(bytes)) => value = bytes,
            _ => return Err("it has a map entry that cannot be read".to_owned()),
        }
    }
    let value = match kind {
        BytesMap => json!(STANDARD.encode(value)),
        Quantities => match fields(value)?.as_slice() {
            [(1, Wire::Bytes(text))] => json!(utf8(text)?),
            _ => return Err("it has a quantity that cannot be read".to_owned()),
        },
        _ => json!(utf8(value)?),
    };
    Ok((key, value))
}

fn time(bytes: &[u8]) -> Result<Value, String> {
    let seconds = fields(bytes)?.into_iter().find_map(|field| match field {
        (1, Wire::Number(seconds)) => Some(seconds.cast_signed()),
        _ => None,
    });
    let at = crate::clock::at_second(seconds.unwrap_or(0)).ok_or("it has a time out of range")?;
    Ok(json!(crate::clock::seconds(at)))
}

fn int_or_string(bytes: &[u8]) -> Result<Value, String> {
    let (mut is_text, mut number, mut text) = (false, 0, String::new());
    for field in fields(bytes)? {
        match field {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => text = utf8(bytes)?,
            _ => return Err("it has a port that cannot be read".to_owned()),
        }
    }
    Ok(if is_text { json!(text) } else { json!(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field of bytes.
    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        let mut bytes = vec![number << 3 | 2, u8::try_from(content.len()).unwrap()];
        bytes.extend_from_slice(content);
        bytes
    }

    fn body(kind: &str, raw: &[u8]) -> Vec<u8> {
        let kind = [field(1, b"v1"), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &kind), field(2, raw), field(3, b"")].concat()
    }

    #[test]
    fn a_config_map_is_read() {
        let metadata = [field(1, b"a"), field(2, b""), field(8, b"")].concat();
        let entry = [field(1, b"k"), field(2, b"v")].concat();
        let raw = [field(1, &metadata), field(2, &entry), field(3, &entry)].concat();
        assert_eq!(
            read(&body("ConfigMap", &raw)).unwrap(),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                   "data": {"k": "v"}, "binaryData": {"k": "dg=="}})
        );
    }

    #[test]
    fn a_target_port_is_a_number_or_a_name() {
        assert_eq!(int_or_string(&[1 << 3, 0, 2 << 3, 80]).unwrap(), 80);
        let name = [vec![1 << 3, 1, 2 << 3, 0], field(3, b"http")].concat();
        assert_eq!(int_or_string(&name).unwrap(), "http");
    }

    #[test]
    fn what_is_not_known_is_refused_and_not_dropped() {
        let raw = field(9, b"x");
        assert!(read(&body("ConfigMap", &raw)).unwrap_err().contains("field 9 of ConfigMap"));
        assert!(read(&body("Lease", b"")).unwrap_err().contains("Lease is read from JSON only"));
        assert!(read(b"{}").is_err());
        assert!(read(&body("ConfigMap", &[10, 99])).unwrap_err().contains("ends in the middle"));
    }
}
