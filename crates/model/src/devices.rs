//! What a resource claim is told of the interfaces that its devices stand for.
//!
//! The rule: only devices of our driver, in a claim that is reserved for this pod and no other. The
//! request under which a device was allocated has the name of the interface.

use atoll_api::GROUP;
use k8s_openapi::api::resource::v1::{
    AllocatedDeviceStatus, DeviceRequestAllocationResult, NetworkDeviceData, ResourceClaim,
    ResourceClaimStatus,
};

/// The driver whose devices are interfaces of ours.
pub const DRIVER: &str = GROUP;

/// What follows for a claim.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Told {
    /// What its `status.devices` shall be, if it is not so already.
    pub devices: Option<Vec<AllocatedDeviceStatus>>,
    /// What people should know: which device stands for no interface, and why.
    pub complaint: Option<String>,
}

/// What a claim is told about the pod with this uid and these interfaces.
pub fn told(claim: &ResourceClaim, pod_uid: &str, interfaces: &[NetworkDeviceData]) -> Told {
    let Some(status) = &claim.status else { return Told::default() };
    let ours: Vec<_> = results(status).filter(|result| result.driver == DRIVER).collect();
    let reserved = status.reserved_for.as_deref().unwrap_or_default();
    if ours.is_empty() || !reserved.iter().any(|consumer| consumer.uid == pod_uid) {
        return Told::default();
    }
    if reserved.len() > 1 {
        let why = "is reserved for several pods, and a device can tell one pod's interface";
        return Told { devices: None, complaint: Some(format!("{} {why}", name(claim))) };
    }
    let (known, strangers): (Vec<_>, Vec<_>) =
        ours.into_iter().partition(|result| interface_of(result, interfaces).is_some());
    let before = status.devices.clone().unwrap_or_default();
    let mut devices = before.clone();
    for result in known {
        let data = interface_of(result, interfaces).cloned();
        entry(&mut devices, result).network_data = data;
    }
    Told {
        devices: (devices != before).then_some(devices),
        complaint: unserved(claim, &strangers, interfaces),
    }
}

fn results(status: &ResourceClaimStatus) -> impl Iterator<Item = &DeviceRequestAllocationResult> {
    let devices = status.allocation.iter().flat_map(|allocation| &allocation.devices);
    devices.flat_map(|devices| devices.results.iter().flatten())
}

/// The interface that a device stands for. A request with alternatives is named `request/chosen`.
fn interface_of<'a>(
    result: &DeviceRequestAllocationResult,
    interfaces: &'a [NetworkDeviceData],
) -> Option<&'a NetworkDeviceData> {
    let request = result.request.split('/').next();
    interfaces.iter().find(|interface| interface.interface_name.as_deref() == request)
}

/// The status of a device, made where there is none.
fn entry<'a>(
    devices: &'a mut Vec<AllocatedDeviceStatus>,
    result: &DeviceRequestAllocationResult,
) -> &'a mut AllocatedDeviceStatus {
    let same = |status: &AllocatedDeviceStatus| {
        (&status.driver, &status.pool, &status.device, &status.share_id)
            == (&result.driver, &result.pool, &result.device, &result.share_id)
    };
    let position = devices.iter().position(same).unwrap_or(devices.len());
    if position == devices.len() {
        devices.push(AllocatedDeviceStatus {
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
            share_id: result.share_id.clone(),
            ..AllocatedDeviceStatus::default()
        });
    }
    &mut devices[position]
}

fn unserved(
    claim: &ResourceClaim,
    strangers: &[&DeviceRequestAllocationResult],
    interfaces: &[NetworkDeviceData],
) -> Option<String> {
    let requests: Vec<&str> = strangers.iter().map(|result| result.request.as_str()).collect();
    let names: Vec<&str> =
        interfaces.iter().filter_map(|interface| interface.interface_name.as_deref()).collect();
    (!requests.is_empty()).then(|| {
        let (requests, names) = (requests.join(", "), names.join(", "));
        format!(
            "{}: request {requests} has the name of no interface of the pod; it has {names}",
            name(claim)
        )
    })
}

fn name(claim: &ResourceClaim) -> String {
    format!("resource claim {}", claim.metadata.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn interface(name: &str, ip: &str) -> NetworkDeviceData {
        NetworkDeviceData {
            interface_name: Some(name.into()),
            ips: Some(vec![ip.into()]),
            hardware_address: Some("02:00:00:00:00:05".into()),
        }
    }

    fn both() -> [NetworkDeviceData; 2] {
        [interface("eth0", "10.0.0.5/32"), interface("data", "10.1.0.5/32")]
    }

    fn result(driver: &str, request: &str, device: &str) -> Value {
        json!({"driver": driver, "pool": "node1", "request": request, "device": device})
    }

    fn claim(results: &[Value], pods: &[&str], devices: &Value) -> ResourceClaim {
        let reserved: Vec<Value> =
            pods.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
        let status = json!({"allocation": {"devices": {"results": results}},
                            "reservedFor": reserved, "devices": devices});
        let object = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": "nets"}, "spec": {"devices": {}}, "status": status});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn each_device_of_ours_has_the_interface_of_its_requests_name() {
        let results = [result(DRIVER, "data", "d1"), result(DRIVER, "eth0/fast", "d0")];
        let told = told(&claim(&results, &["web"], &json!([])), "web", &both());
        let devices = told.devices.unwrap();
        let seen: Vec<_> = devices
            .iter()
            .map(|it| (it.device.as_str(), it.network_data.clone().unwrap()))
            .collect();
        let [eth0, data] = both();
        assert_eq!(seen, [("d1", data), ("d0", eth0)]);
        assert_eq!(told.complaint, None);
    }

    #[test]
    fn devices_of_others_and_what_others_wrote_stay_as_they_are() {
        let results = [result("gpu.example.org", "eth0", "g0"), result(DRIVER, "eth0", "d0")];
        let before = json!([
            {"driver": "gpu.example.org", "pool": "node1", "device": "g0", "data": {"a": 1}},
            {"driver": DRIVER, "pool": "node1", "device": "d0", "data": {"b": 2}}]);
        let told = told(&claim(&results, &["web"], &before), "web", &both());
        let devices = serde_json::to_value(told.devices.unwrap()).unwrap();
        assert_eq!(devices[0], before[0]);
        assert_eq!(devices[1]["data"], json!({"b": 2}));
        assert_eq!(devices[1]["networkData"]["ips"], json!(["10.0.0.5/32"]));
        assert_eq!(devices.as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_is_known_is_not_told_again() {
        let results = [result(DRIVER, "eth0", "d0")];
        let first = told(&claim(&results, &["web"], &json!([])), "web", &both());
        let known = serde_json::to_value(first.devices.unwrap()).unwrap();
        assert_eq!(told(&claim(&results, &["web"], &known), "web", &both()), Told::default());
    }

    #[test]
    fn claims_that_are_not_allocated_to_us_or_not_reserved_for_the_pod_hear_nothing() {
        let ours = [result(DRIVER, "eth0", "d0")];
        let others = [result("gpu.example.org", "eth0", "g0")];
        for (results, pods) in [(&ours[..], &["db"][..]), (&ours, &[]), (&others, &["web"])] {
            let claim = claim(results, pods, &json!([]));
            assert_eq!(told(&claim, "web", &both()), Told::default(), "{pods:?}");
        }
        let fresh = ResourceClaim { status: None, ..claim(&ours, &["web"], &json!([])) };
        assert_eq!(told(&fresh, "web", &both()), Told::default());
    }

    #[test]
    fn a_request_that_names_no_interface_is_named_with_those_there_are() {
        let results = [result(DRIVER, "eth1", "d1"), result(DRIVER, "eth0", "d0")];
        let told = told(&claim(&results, &["web"], &json!([])), "web", &both());
        assert_eq!(told.devices.unwrap().len(), 1);
        assert_eq!(
            told.complaint.unwrap(),
            "resource claim nets: request eth1 has the name of no interface of the pod; \
             it has eth0, data"
        );
    }

    #[test]
    fn a_claim_of_several_pods_tells_the_interface_of_none() {
        let results = [result(DRIVER, "eth0", "d0")];
        let told = told(&claim(&results, &["web", "db"], &json!([])), "web", &both());
        assert_eq!(told.devices, None);
        assert!(told.complaint.unwrap().contains("is reserved for several pods"));
    }
}
