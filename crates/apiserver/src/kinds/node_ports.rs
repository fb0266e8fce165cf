//! The ports of every node at which a service is reached.
//!
//! The rule of this file: only services whose type has node ports have any, and one that was asked for is
//! given or refused, never replaced.

use super::service::{Claim, has_node_ports};
use crate::failure::Cause;
use crate::object::{at, text};
use serde_json::Value;

const NODE_PORTS: std::ops::Range<u16> = 30_000..32_768;

/// The numbers that a service has.
pub(super) fn named(service: &Value) -> Vec<u16> {
    ports(service).iter().filter_map(number).collect()
}

fn ports(service: &Value) -> &[Value] {
    at(service, "spec.ports").and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn ports_mut(service: &mut Value) -> &mut [Value] {
    let ports = service.get_mut("spec").and_then(|spec| spec.get_mut("ports")?.as_array_mut());
    ports.map_or(&mut [], Vec::as_mut_slice)
}

fn number(port: &Value) -> Option<u16> {
    port["nodePort"].as_u64().and_then(|port| u16::try_from(port).ok()).filter(|port| *port != 0)
}

/// A service whose type has none any more loses those that it had.
pub(super) fn drop_of_former_type(service: &mut Value, old: &Value) {
    let had = named(old);
    let says_nothing_new = named(service).iter().all(|number| had.contains(number));
    if has_node_ports(service) || !has_node_ports(old) || !says_nothing_new {
        return;
    }
    for port in ports_mut(service).iter_mut().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
}

/// An update that does not mention them keeps them, by the names of the service's ports.
pub(super) fn keep(service: &mut Value, old: &Value) {
    if !has_node_ports(service) || !has_node_ports(old) {
        return;
    }
    let mentioned = named(service);
    for port in ports_mut(service).iter_mut().filter(|port| number(port).is_none()) {
        let kept = ports(old).iter().rfind(|former| former["name"] == port["name"]);
        let kept = kept.and_then(number).filter(|number| !mentioned.contains(number));
        if let Some(kept) = kept {
            port["nodePort"] = kept.into();
        }
    }
}

/// Whether ports that ask for no number are given one. A load balancer may do without.
fn gives_to_all(service: &Value) -> bool {
    let spared = at(service, "spec.allocateLoadBalancerNodePorts") == Some(&Value::Bool(false));
    text(service, "spec.type") == "NodePort" || !spared
}

/// Gives each port of a service its number. `taken` says what others have, `from` where to begin to look.
///
/// As kube-apiserver does it, ports of a new service that differ by their protocol alone share a number;
/// those of one that was there before share where they say so.
pub(super) fn give(
    service: &mut Value,
    is_new: bool,
    taken: &impl Fn(Claim) -> bool,
    from: u32,
) -> Result<(), Cause> {
    if !has_node_ports(service) {
        return Ok(());
    }
    let gives_to_all = gives_to_all(service);
    let mut given = Given { is_new, asked: asked(service), so_far: vec![] };
    for (index, port) in ports_mut(service).iter_mut().enumerate() {
        if number(port).is_none() && !gives_to_all {
            continue;
        }
        let refuse = |why: &str| {
            let field = format!("spec.ports[{index}].nodePort");
            Cause::invalid(&field, &port["nodePort"], why)
        };
        let is_free = |number: u16| !taken(Claim::NodePort(number)) && !given.has(number);
        let number = match number(port).or_else(|| given.twins(port)) {
            Some(shared) if given.may_share(port, shared) => shared,
            Some(asked) => check(asked, is_free).map_err(refuse)?,
            None => next_free(is_free, from).ok_or_else(|| refuse("range is full"))?,
        };
        given.so_far.push((port["port"].clone(), number));
        port["nodePort"] = number.into();
    }
    Ok(())
}

/// The numbers that a service asks for, by the ports that do.
fn asked(service: &Value) -> Vec<(Value, u16)> {
    ports(service).iter().filter_map(|port| Some((port["port"].clone(), number(port)?))).collect()
}

/// What a service was given so far, by its ports.
struct Given {
    is_new: bool,
    asked: Vec<(Value, u16)>,
    so_far: Vec<(Value, u16)>,
}

impl Given {
    fn has(&self, number: u16) -> bool {
        self.so_far.iter().any(|(_, given)| *given == number)
    }

    /// The number of a port that differs by its protocol alone.
    fn twins(&self, port: &Value) -> Option<u16> {
        let mut all = self.so_far.iter().chain(&self.asked).filter(|_| self.is_new);
        all.find(|(of, _)| *of == port["port"]).map(|(_, number)| *number)
    }

    /// Whether the service has the number already, and this port may have it, too.
    fn may_share(&self, port: &Value, number: u16) -> bool {
        let mut same = self.so_far.iter().filter(|(_, given)| *given == number);
        same.any(|(of, _)| !self.is_new || *of == port["port"])
    }
}

/// A number that was asked for.
pub(super) fn check(asked: u16, is_free: impl Fn(u16) -> bool) -> Result<u16, &'static str> {
    if !NODE_PORTS.contains(&asked) {
        return Err("provided port is not in the valid range. The range of valid ports is \
                    30000-32767");
    }
    is_free(asked).then_some(asked).ok_or("provided port is already allocated")
}

pub(super) fn next_free(is_free: impl Fn(u16) -> bool, from: u32) -> Option<u16> {
    let start = u16::try_from(from % 2768).unwrap_or(0);
    (0..2768).map(|step| NODE_PORTS.start + (start + step) % 2768).find(|number| is_free(*number))
}

/// Numbers that the service may not ask for, or not twice.
pub(super) fn validate(service: &Value) -> Vec<Cause> {
    let mut causes = vec![];
    let mut seen = vec![];
    for (index, port) in ports(service).iter().enumerate() {
        let Some(number) = number(port) else { continue };
        let field = format!("spec.ports[{index}].nodePort");
        if text(service, "spec.type") == "ClusterIP" {
            causes.push(Cause::forbidden(&field, "may not be used when `type` is 'ClusterIP'"));
        }
        if seen.contains(&(&port["protocol"], number)) {
            causes.push(Cause::duplicate(&field, &port["nodePort"]));
        }
        seen.push((&port["protocol"], number));
    }
    let allocate = "spec.allocateLoadBalancerNodePorts";
    if at(service, allocate).is_some() && text(service, "spec.type") != "LoadBalancer" {
        causes.push(Cause::forbidden(allocate, "may only be used when `type` is 'LoadBalancer'"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn given(spec: &Value, is_new: bool) -> Result<Vec<u16>, String> {
        let mut service = json!({ "spec": spec });
        give(&mut service, is_new, &|_| false, 0).map_err(|cause| cause.message)?;
        Ok(named(&service))
    }

    #[test]
    fn ports_that_differ_by_protocol_alone_share_a_number() {
        let dns = |tcp: Value, udp: Value| {
            json!({"type": "NodePort", "ports": [
                {"port": 53, "protocol": "TCP", "nodePort": tcp},
                {"port": 53, "protocol": "UDP", "nodePort": udp}]})
        };
        let none = Value::Null;
        assert_eq!(given(&dns(none.clone(), none.clone()), true), Ok(vec![30_000, 30_000]));
        for spec in [dns(none.clone(), json!(30_053)), dns(json!(30_053), none)] {
            assert_eq!(given(&spec, true), Ok(vec![30_053, 30_053]), "{spec}");
        }
        let apart = dns(json!(30_053), json!(30_054));
        assert_eq!(given(&apart, true), Ok(vec![30_053, 30_054]));
    }

    #[test]
    fn others_share_a_number_only_where_a_service_that_was_there_says_so() {
        let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30_080},
                           {"port": 81, "protocol": "UDP", "nodePort": 30_080}]);
        let spec = json!({"type": "NodePort", "ports": ports});
        assert!(given(&spec, true).unwrap_err().contains("already allocated"));
        assert_eq!(given(&spec, false), Ok(vec![30_080, 30_080]));
        let mut same = json!({ "spec": spec });
        same["spec"]["ports"][1]["protocol"] = "TCP".into();
        assert!(validate(&same)[0].message.contains("Duplicate value: 30080"));
    }

    #[test]
    fn a_load_balancer_may_do_without_and_is_given_what_it_asks_for_all_the_same() {
        let spec = |kind: &str| {
            json!({"type": kind, "allocateLoadBalancerNodePorts": false,
                   "ports": [{"port": 80}, {"port": 81, "nodePort": 30_081}]})
        };
        assert_eq!(given(&spec("LoadBalancer"), true), Ok(vec![30_081]));
        let other = json!({"spec": spec("NodePort")});
        assert_eq!(validate(&other)[0].field, "spec.allocateLoadBalancerNodePorts");
    }
}
