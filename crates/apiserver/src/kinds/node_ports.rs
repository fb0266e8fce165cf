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

/// Gives each port of a service its number. `taken` says what others have, `from` where to begin to look.
pub(super) fn give(
    service: &mut Value,
    taken: &impl Fn(Claim) -> bool,
    from: u32,
) -> Result<(), Cause> {
    if !has_node_ports(service) {
        return Ok(());
    }
    let mut given: Vec<u16> = Vec::new();
    for (index, port) in ports_mut(service).iter_mut().enumerate() {
        let refuse = |why: &str| {
            let field = format!("spec.ports[{index}].nodePort");
            Cause::invalid(&field, &port["nodePort"], why)
        };
        let is_free = |number: u16| !taken(Claim::NodePort(number)) && !given.contains(&number);
        let number = match number(port) {
            Some(asked) => check(asked, is_free).map_err(refuse)?,
            None => next_free(is_free, from).ok_or_else(|| refuse("range is full"))?,
        };
        given.push(number);
        port["nodePort"] = number.into();
    }
    Ok(())
}

/// A number that was asked for.
fn check(asked: u16, is_free: impl Fn(u16) -> bool) -> Result<u16, &'static str> {
    if !NODE_PORTS.contains(&asked) {
        return Err("provided port is not in the valid range. The range of valid ports is \
                    30000-32767");
    }
    is_free(asked).then_some(asked).ok_or("provided port is already allocated")
}

fn next_free(is_free: impl Fn(u16) -> bool, from: u32) -> Option<u16> {
    let start = u16::try_from(from % 2768).unwrap_or(0);
    (0..2768).map(|step| NODE_PORTS.start + (start + step) % 2768).find(|number| is_free(*number))
}

/// Numbers that no service of its type may ask for.
pub(super) fn validate(service: &Value) -> Vec<Cause> {
    if text(service, "spec.type") != "ClusterIP" {
        return vec![];
    }
    let asking = ports(service).iter().enumerate().filter(|(_, port)| number(port).is_some());
    let refuse = |(index, _)| {
        let field = format!("spec.ports[{index}].nodePort");
        Cause::forbidden(&field, "may not be used when `type` is 'ClusterIP'")
    };
    asking.map(refuse).collect()
}
