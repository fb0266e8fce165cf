//! One question of the API and its answer, as admission.k8s.io/v1 writes them.

use atoll_model::probes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

/// Why a question cannot be answered at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReviewError {
    /// It is none.
    #[error("the body is no AdmissionReview with a request: {0}")]
    NoQuestion(&'static str),
    /// It is about something else.
    #[error("the request's object is no pod: {0}")]
    NoPod(String),
}

/// The answer to a question about a pod; `id` names the pod's sheet.
pub(crate) fn answer(review: &Value, id: &str) -> Result<Value, ReviewError> {
    let text = |field: &'static str| {
        review["request"][field].as_str().ok_or(ReviewError::NoQuestion(field))
    };
    let (uid, namespace) = (text("uid")?, text("namespace")?);
    let pod: Pod = serde_json::from_value(review["request"]["object"].clone())
        .map_err(|error| ReviewError::NoPod(error.to_string()))?;
    let response = match probes::admit(&pod, namespace, id) {
        Ok(patch) if patch.is_empty() => json!({"uid": uid, "allowed": true}),
        Ok(patch) => json!({"uid": uid, "allowed": true, "patchType": "JSONPatch",
                            "patch": STANDARD.encode(Value::from(patch).to_string())}),
        Err(why) => json!({"uid": uid, "allowed": false,
                           "status": {"code": 422, "message": why.to_string()}}),
    };
    let version = "admission.k8s.io/v1";
    Ok(json!({"apiVersion": version, "kind": "AdmissionReview", "response": response}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(probe: &Value) -> Value {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u1", "namespace": "acme", "object": {
                "apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "web-"},
                "spec": {"containers": [{"name": "web", "image": "x", "readinessProbe": probe}]}}}})
    }

    fn response(probe: &Value) -> Value {
        answer(&question(probe), "x1").unwrap()["response"].clone()
    }

    #[test]
    fn a_pod_with_a_probe_is_admitted_with_a_patch() {
        let said = response(&json!({"tcpSocket": {"port": 80}}));
        assert_eq!((&said["uid"], &said["allowed"]), (&json!("u1"), &json!(true)));
        let patch = STANDARD.decode(said["patch"].as_str().unwrap()).unwrap();
        let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
        assert_eq!(patch[1]["value"]["path"], "/probe/acme/x1/web/readiness");
    }

    #[test]
    fn a_pod_without_one_is_admitted_as_it_is() {
        let said = response(&json!({"exec": {"command": ["true"]}}));
        assert_eq!(said, json!({"uid": "u1", "allowed": true}));
    }

    #[test]
    fn a_probe_that_leads_elsewhere_is_refused_with_a_sentence() {
        let said = response(&json!({"httpGet": {"port": 80, "host": "10.0.0.9"}}));
        assert_eq!(said["allowed"], false);
        let message = said["status"]["message"].as_str().unwrap();
        assert!(message.contains("readinessProbe.httpGet.host is \"10.0.0.9\""), "{message}");
    }

    #[test]
    fn what_is_no_question_about_a_pod_is_an_error() {
        let said = |review: &Value| answer(review, "x1").unwrap_err().to_string();
        assert!(said(&json!({})).contains("uid"));
        let node = json!({"request": {"uid": "u1", "namespace": "acme", "object": 7}});
        assert!(said(&node).contains("no pod"));
    }
}
