//! The cluster addresses of a service: one of each family that it has.
//!
//! The rule of this file: the first family of a service stays, the second comes and goes with its
//! `ipFamilyPolicy`, and an address that was asked for is given or refused, never replaced.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::service::Claim;
use crate::failure::Cause;
use crate::object::{at, set, text};

/// The first addresses of both ranges, 10.96.0.0/16 and fd96::/112, and how many each has.
const FIRST_V4: u32 = u32::from_be_bytes([10, 96, 0, 0]);
const FIRST_V6: u128 = 0xfd96 << 112;
const COUNT: u32 = 1 << 16;

/// Addresses below this one are handed out only on request, as kube-apiserver does.
const RESERVED: u32 = 16;

/// What stands in a service's fields of addresses.
pub(super) fn named(service: &Value) -> Vec<String> {
    let all = at(service, "spec.clusterIPs").and_then(Value::as_array);
    let all = all.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned);
    let first = text(service, "spec.clusterIP");
    let all: Vec<String> = all.collect();
    match all.first() {
        Some(listed) if first.is_empty() || listed == first => all,
        _ if first.is_empty() => vec![],
        _ => vec![first.to_owned()],
    }
}

/// Says which families a service has and by which policy, where it does not say so itself.
pub(super) fn fill_families(service: &mut Value) {
    let listed = at(service, "spec.ipFamilies").and_then(Value::as_array);
    let listed = listed.into_iter().flatten().filter_map(Value::as_str).map(ToOwned::to_owned);
    let mut families: Vec<String> = listed.collect();
    if families.is_empty() {
        let named = named(service).into_iter().filter_map(|ip| ip.parse::<IpAddr>().ok());
        families = named.map(|ip| family_of(ip).to_owned()).collect();
    }
    if families.is_empty() {
        families.push("IPv4".to_owned());
    }
    let policy = match (text(service, "spec.ipFamilyPolicy"), families.len()) {
        ("", 1) => "SingleStack".to_owned(),
        ("", _) => "RequireDualStack".to_owned(),
        (said, _) => said.to_owned(),
    };
    match policy.as_str() {
        "SingleStack" => families.truncate(1),
        _ if families.len() == 1 => {
            let other = if families[0] == "IPv4" { "IPv6" } else { "IPv4" };
            families.push(other.to_owned());
        }
        _ => {}
    }
    set(service, "spec.ipFamilyPolicy", policy);
    set(service, "spec.ipFamilies", json!(families));
}

/// Gives a service an address of each of its families.
pub(super) fn give(
    service: &mut Value,
    taken: &impl Fn(Claim) -> bool,
    from: u32,
) -> Result<(), Cause> {
    let named = named(service);
    if text(service, "spec.type") == "ExternalName" {
        return Ok(());
    }
    if named.first().is_some_and(|first| first == "None") {
        set(service, "spec.clusterIPs", json!(["None"]));
        return Ok(());
    }
    let families = at(service, "spec.ipFamilies").and_then(Value::as_array).cloned();
    let families = families.filter(|it| !it.is_empty()).unwrap_or_else(|| vec![json!("IPv4")]);
    let mut given = vec![];
    for (place, family) in families.iter().enumerate() {
        let v4 = family == "IPv4";
        let address = match named.get(place) {
            Some(asked) => check(asked, v4, place, taken)?,
            None => free(v4, taken, from)?,
        };
        given.push(address.to_string());
    }
    set(service, "spec.clusterIP", given[0].clone());
    set(service, "spec.clusterIPs", json!(given));
    Ok(())
}

/// An address that was asked for.
fn check(
    asked: &str,
    v4: bool,
    place: usize,
    taken: &impl Fn(Claim) -> bool,
) -> Result<IpAddr, Cause> {
    let family = if v4 { "IPv4" } else { "IPv6" };
    let address = asked.parse::<IpAddr>().ok().filter(|ip| ip.is_ipv4() == v4);
    let address = address.ok_or_else(|| {
        let why = format!("expected an {family} value as indicated by `ipFamilies[{place}]`");
        Cause::invalid(&format!("spec.clusterIPs[{place}]"), &json!(asked), &why)
    })?;
    if !is_in_range(address) {
        return Err(cause(asked, "the provided network does not match the current range"));
    }
    if taken(Claim::Address(address)) {
        return Err(cause(asked, "provided IP is already allocated"));
    }
    Ok(address)
}

fn free(v4: bool, taken: &impl Fn(Claim) -> bool, from: u32) -> Result<IpAddr, Cause> {
    let span = COUNT - RESERVED - 1;
    let all = (0..span).map(|step| nth(v4, RESERVED + (from % span + step) % span));
    let free = all.into_iter().find(|address| !taken(Claim::Address(*address)));
    free.ok_or_else(|| cause("a free one", "range is full"))
}

fn nth(v4: bool, number: u32) -> IpAddr {
    match v4 {
        true => Ipv4Addr::from(FIRST_V4 + number).into(),
        false => Ipv6Addr::from(FIRST_V6 + u128::from(number)).into(),
    }
}

/// Neither the first nor the last of a range is anybody's.
fn is_in_range(address: IpAddr) -> bool {
    let inside = 1..COUNT - 1;
    match address {
        IpAddr::V4(ip) => ip.to_bits().checked_sub(FIRST_V4).is_some_and(|it| inside.contains(&it)),
        IpAddr::V6(ip) => {
            let number = ip.to_bits().checked_sub(FIRST_V6).and_then(|it| u32::try_from(it).ok());
            number.is_some_and(|it| inside.contains(&it))
        }
    }
}

fn family_of(ip: IpAddr) -> &'static str {
    if ip.is_ipv4() { "IPv4" } else { "IPv6" }
}

fn cause(address: &str, why: &str) -> Cause {
    let why = format!("failed to allocate IP {address}: {why}");
    Cause::invalid("spec.clusterIPs", &json!([address]), &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(spec: &Value) -> Result<Value, Cause> {
        let mut service = json!({ "spec": spec });
        fill_families(&mut service);
        give(&mut service, &|_| false, 0)?;
        Ok(service["spec"].clone())
    }

    #[test]
    fn a_service_has_one_family_unless_it_asks_for_both() {
        let spec = given(&json!({"type": "ClusterIP"})).unwrap();
        assert_eq!(spec["clusterIPs"], json!(["10.96.0.16"]));
        assert_eq!(spec["ipFamilyPolicy"], "SingleStack");
        let six = given(&json!({"ipFamilies": ["IPv6"]})).unwrap();
        assert_eq!(
            (&six["clusterIP"], &six["clusterIPs"]),
            (&json!("fd96::10"), &json!(["fd96::10"]))
        );
    }

    #[test]
    fn both_families_are_given_to_who_prefers_requires_or_names_them() {
        let both = json!(["10.96.0.16", "fd96::10"]);
        for asked in [
            json!({"ipFamilyPolicy": "PreferDualStack"}),
            json!({"ipFamilyPolicy": "RequireDualStack"}),
            json!({"ipFamilies": ["IPv4", "IPv6"]}),
            json!({"clusterIPs": ["10.96.0.16", "fd96::10"]}),
        ] {
            let spec = given(&asked).unwrap();
            assert_eq!(spec["clusterIPs"], both, "{asked}");
            assert_eq!(spec["ipFamilies"], json!(["IPv4", "IPv6"]), "{asked}");
            assert_eq!(spec["clusterIP"], both[0], "{asked}");
        }
        let turned = given(&json!({"ipFamilies": ["IPv6"], "ipFamilyPolicy": "PreferDualStack"}));
        assert_eq!(turned.unwrap()["clusterIPs"], json!(["fd96::10", "10.96.0.16"]));
    }

    #[test]
    fn the_second_family_comes_and_goes_with_the_policy_and_the_first_stays() {
        let mut spec = given(&json!({"clusterIP": "10.96.0.77"})).unwrap();
        spec["ipFamilyPolicy"] = json!("PreferDualStack");
        let mut spec = given(&spec).unwrap();
        assert_eq!(spec["clusterIPs"], json!(["10.96.0.77", "fd96::10"]));
        spec["ipFamilyPolicy"] = json!("SingleStack");
        let spec = given(&spec).unwrap();
        assert_eq!(spec["clusterIPs"], json!(["10.96.0.77"]));
        assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
    }

    #[test]
    fn an_address_of_another_family_or_range_is_refused_by_its_field() {
        let refused = |spec: Value| given(&spec).unwrap_err();
        let wrong = refused(json!({"ipFamilies": ["IPv6"], "clusterIP": "10.96.0.5"}));
        assert_eq!(wrong.field, "spec.clusterIPs[0]");
        assert!(wrong.message.contains("`ipFamilies[0]`"), "{}", wrong.message);
        for ip in ["10.97.0.1", "fd97::1", "fd96::", "10.96.255.255"] {
            assert!(refused(json!({"clusterIP": ip})).message.contains("current range"), "{ip}");
        }
    }
}
