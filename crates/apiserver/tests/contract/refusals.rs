//! Bad input: which code and reason it gets, and a message that clients can show.

use crate::Subject;
use crate::server::{is_embedded, refusal};
use kube::core::Status;
use serde_json::{Value, json};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// A request that must be refused; `path` is below the config maps of the case's namespace.
async fn refused(
    subject: &Subject,
    method: &str,
    path: &str,
    media: &str,
    body: impl Into<Vec<u8>>,
) -> Status {
    let url = format!("/api/v1/namespaces/{}/configmaps{path}", subject.namespace);
    let request = http::Request::builder()
        .method(method)
        .uri(url)
        .header("content-type", media)
        .body(body.into())
        .unwrap();
    refusal(subject.client.request::<Value>(request).await)
}

async fn refused_get(query: &str) -> Status {
    let subject = Subject::new().await;
    refused(&subject, "GET", query, JSON, "").await
}

async fn refused_create(query: &str, body: &Value) -> Status {
    let subject = Subject::new().await;
    refused(&subject, "POST", query, JSON, body.to_string()).await
}

async fn refused_patch(query: &str, media: &str, body: &str) -> Status {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "configmap", "x"]);
    refused(&subject, "PATCH", &format!("/x{query}"), media, body).await
}

#[track_caller]
fn is(status: &Status, code: u16, reason: &str, text: &str) {
    assert_eq!((status.code, status.reason.as_str()), (code, reason), "{}", status.message);
    assert!(status.message.contains(text), "{:?} does not say {text:?}", status.message);
}

#[tokio::test]
async fn half_an_object_is_a_bad_request() {
    let subject = Subject::new().await;
    let status = refused(&subject, "POST", "", JSON, "{\"kind\":\"ConfigMap\"").await;
    is(
        &status,
        400,
        "BadRequest",
        "the object provided is unrecognized (must be of type ConfigMap)",
    );
}

#[tokio::test]
async fn a_list_is_no_object() {
    is(&refused_create("", &json!([])).await, 400, "BadRequest", "couldn't get version/kind");
}

#[tokio::test]
async fn another_kind_cannot_be_handled() {
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}});
    let text = "Pod in version \"v1\" cannot be handled as a ConfigMap";
    is(&refused_create("", &body).await, 400, "BadRequest", text);
}

#[tokio::test]
async fn another_version_cannot_be_handled() {
    let body = json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}});
    let text = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap";
    is(&refused_create("", &body).await, 400, "BadRequest", text);
}

#[tokio::test]
async fn a_new_object_has_no_version_yet() {
    let body = json!({"metadata": {"name": "x", "resourceVersion": "5"}});
    let status = refused_create("", &body).await;
    assert_eq!(status.code, 500);
    assert_eq!(status.message, "resourceVersion should not be set on objects to be created");
}

#[tokio::test]
async fn the_namespace_of_the_object_is_that_of_the_path() {
    let body = json!({"metadata": {"name": "x", "namespace": "other"}});
    let text = "the namespace of the provided object does not match the namespace sent";
    is(&refused_create("", &body).await, 400, "BadRequest", text);
}

#[tokio::test]
async fn an_object_needs_a_name() {
    let status = refused_create("", &json!({"metadata": {}})).await;
    is(&status, 422, "Invalid", "metadata.name: Required value: name or generateName is required");
}

#[tokio::test]
async fn a_bad_label_is_invalid() {
    let body = json!({"metadata": {"name": "x", "labels": {"a": "not valid!"}}});
    let text = "metadata.labels: Invalid value: \"not valid!\"";
    is(&refused_create("", &body).await, 422, "Invalid", text);
}

#[tokio::test]
async fn unknown_fields_are_refused_when_asked_to_be_strict() {
    let body = json!({"metadata": {"name": "x", "foo": 1}, "bar": {}});
    let status = refused_create("?fieldValidation=Strict", &body).await;
    is(&status, 400, "BadRequest", "strict decoding error: ");
    for field in ["unknown field \"metadata.foo\"", "unknown field \"bar\""] {
        assert!(status.message.contains(field), "{}", status.message);
    }
}

#[tokio::test]
async fn options_that_do_not_exist_are_invalid() {
    let body = json!({"metadata": {"name": "x"}});
    let status = refused_create("?dryRun=some", &body).await;
    is(&status, 422, "Invalid", "dryRun: Unsupported value: [\"some\"]: supported values: \"All\"");
    let status = refused_create("?fieldValidation=loose", &body).await;
    is(&status, 422, "Invalid", "fieldValidation: Unsupported value: \"loose\"");
}

#[tokio::test]
async fn a_body_that_is_neither_json_nor_yaml_is_not_supported() {
    let subject = Subject::new().await;
    let status = refused(&subject, "POST", "", "text/plain", "x").await;
    is(&status, 415, "UnsupportedMediaType", "the body of the request was in an unknown format");
}

#[tokio::test]
async fn a_body_beyond_three_megabytes_is_too_large() {
    let body = json!({"metadata": {"name": "x"}, "data": {"x": "x".repeat(3 << 20)}});
    let status = refused_create("", &body).await;
    is(&status, 413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728");
}

#[tokio::test]
async fn a_page_size_is_a_number() {
    is(&refused_get("?limit=x").await, 400, "BadRequest", "parsing \"x\": invalid syntax");
}

#[tokio::test]
async fn a_continue_token_comes_from_the_server() {
    is(&refused_get("?continue=xx").await, 400, "BadRequest", "continue key is not valid");
}

/// Asked by kubectl, since kube-rs tries again for as long as the server says it is too early.
#[tokio::test]
async fn a_version_of_the_future_is_too_large() {
    let subject = Subject::new().await;
    let path =
        format!("/api/v1/namespaces/{}/configmaps?resourceVersion=999999999", subject.namespace);
    let (ok, _, err) = subject.try_kubectl(&["get", "--raw", &path], None);
    assert!(!ok && err.contains("Too large resource version: 999999999, current: "), "{err}");
}

#[tokio::test]
async fn a_field_that_cannot_be_selected_is_named() {
    let status = refused_get("?fieldSelector=foo%3Dbar").await;
    is(&status, 400, "BadRequest", "\"foo\" is not a known field selector");
    let status = refused_get("?fieldSelector=foo").await;
    is(&status, 400, "BadRequest", "invalid selector: 'foo'; can't understand 'foo'");
}

#[tokio::test]
async fn initial_events_belong_to_watches() {
    let status = refused_get("?sendInitialEvents=true").await;
    is(&status, 422, "Invalid", "sendInitialEvents is forbidden for list");
    let status = refused_get("?watch=true&sendInitialEvents=true").await;
    is(&status, 422, "Invalid", "sendInitialEvents requires setting resourceVersionMatch");
}

#[tokio::test]
async fn nothing_is_replaced_that_is_not_there() {
    let subject = Subject::new().await;
    let status =
        refused(&subject, "PUT", "/none", JSON, "{\"metadata\":{\"name\":\"none\"}}").await;
    is(&status, 404, "NotFound", "configmaps \"none\" not found");
}

#[tokio::test]
async fn a_replacement_has_the_name_of_what_it_replaces() {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "configmap", "x"]);
    let status = refused(&subject, "PUT", "/x", JSON, "{\"metadata\":{\"name\":\"y\"}}").await;
    is(
        &status,
        400,
        "BadRequest",
        "the name of the object (y) does not match the name on the URL (x)",
    );
    let status = refused(&subject, "PUT", "/x", JSON, "{\"metadata\":{}}").await;
    is(&status, 400, "BadRequest", "name must be provided");
    let other = "{\"metadata\":{\"name\":\"x\",\"uid\":\"1\"}}";
    let status = refused(&subject, "PUT", "/x", JSON, other).await;
    is(
        &status,
        409,
        "Conflict",
        "Precondition failed: UID in precondition: 1, UID in object meta: ",
    );
}

#[tokio::test]
async fn a_patch_cannot_rename() {
    let body = "{\"metadata\":{\"name\":\"y\"}}";
    let text = "the name of the object (y) does not match the name on the URL (x)";
    is(&refused_patch("", MERGE, body).await, 400, "BadRequest", text);
}

#[tokio::test]
async fn a_patch_that_cannot_be_read_is_a_bad_request() {
    is(&refused_patch("", MERGE, "{").await, 400, "BadRequest", "error decoding patch");
    let json = "application/json-patch+json";
    is(&refused_patch("", json, "{}").await, 400, "BadRequest", "error decoding patch");
}

#[tokio::test]
async fn a_json_patch_to_nowhere_is_invalid() {
    let body = "[{\"op\":\"remove\",\"path\":\"/none\"}]";
    let status = refused_patch("", "application/json-patch+json", body).await;
    is(&status, 422, "Invalid", "the server rejected our request due to an error in our request");
}

#[tokio::test]
async fn a_patch_of_an_unknown_kind_is_not_supported() {
    let status = refused_patch("", JSON, "{}").await;
    is(&status, 415, "UnsupportedMediaType", "");
}

#[tokio::test]
async fn only_an_apply_can_be_forced() {
    let status = refused_patch("?force=true", MERGE, "{}").await;
    is(&status, 422, "Invalid", "force: Forbidden: may not be specified for non-apply patch");
}

#[tokio::test]
async fn a_patch_to_a_wrong_type_is_invalid() {
    let status = refused_patch("", MERGE, "{\"data\":{\"a\":5}}").await;
    is(&status, 422, "Invalid", "patch: Invalid value");
}

#[tokio::test]
async fn a_way_to_delete_dependents_that_does_not_exist_is_invalid() {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "configmap", "x"]);
    let status = refused(&subject, "DELETE", "/x?propagationPolicy=Now", JSON, "").await;
    is(&status, 422, "Invalid", "propagationPolicy: Unsupported value: \"Now\"");
}

#[tokio::test]
async fn methods_that_a_path_does_not_have_are_not_allowed() {
    let subject = Subject::new().await;
    is(&refused(&subject, "POST", "/x", JSON, "{}").await, 405, "MethodNotAllowed", "");
    is(&refused(&subject, "PUT", "", JSON, "{}").await, 405, "MethodNotAllowed", "");
}

#[tokio::test]
async fn a_subresource_that_a_kind_does_not_have_is_not_found() {
    let subject = Subject::new().await;
    let status = refused(&subject, "GET", "/x/status", JSON, "").await;
    is(&status, 404, "NotFound", "the server could not find the requested resource");
}

#[tokio::test]
async fn the_default_namespace_stays() {
    let subject = Subject::new().await;
    let (ok, _, err) = subject.try_kubectl(&["delete", "namespace", "default"], None);
    assert!(!ok && err.contains("this namespace may not be deleted"), "{err}");
}

#[tokio::test]
async fn a_pod_needs_containers_with_names_and_images() {
    let subject = Subject::new().await;
    let pod = |containers: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
               "spec": {"containers": containers}})
        .to_string()
    };
    let told =
        |containers: Value| subject.try_kubectl(&["create", "-f", "-"], Some(&pod(containers))).2;
    let err = told(json!([]));
    assert!(err.contains("spec.containers: Required value"), "{err}");
    let err = told(json!([{"name": "A_b"}]));
    assert!(err.contains("spec.containers[0].name: Invalid value: \"A_b\""), "{err}");
    assert!(err.contains("spec.containers[0].image: Required value"), "{err}");
}

#[tokio::test]
async fn a_service_asks_for_addresses_and_ports_that_exist() {
    let subject = Subject::new().await;
    let told = |spec: Value| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": spec});
        subject.try_kubectl(&["create", "-f", "-"], Some(&service.to_string())).2
    };
    let err = told(json!({}));
    assert!(err.contains("spec.ports: Required value"), "{err}");
    let err = told(json!({"clusterIP": "10.97.0.1", "ports": [{"port": 80}]}));
    assert!(
        err.contains("failed to allocate IP 10.97.0.1: the provided network does not match"),
        "{err}"
    );
    let err = told(json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 80}]}));
    assert!(err.contains("provided port is not in the valid range"), "{err}");
    let err = told(json!({"type": "Other", "ports": [{"port": 0}]}));
    assert!(err.contains("spec.ports[0].port: Invalid value: 0"), "{err}");
    assert!(err.contains("spec.type: Unsupported value: \"Other\""), "{err}");
}

const YAML: &str = "application/yaml";

/// A request to any path, which must be refused.
async fn refused_at(subject: &Subject, path: &str, body: &Value) -> Status {
    let url = path.replace("{namespace}", &subject.namespace);
    let request = http::Request::post(url).header("content-type", JSON);
    let request = request.body(body.to_string().into_bytes()).unwrap();
    refusal(subject.client.request::<Value>(request).await)
}

async fn refused_deployment(spec: Value) -> Status {
    let subject = Subject::new().await;
    let body = json!({"metadata": {"name": "x"}, "spec": spec});
    refused_at(&subject, "/apis/apps/v1/namespaces/{namespace}/deployments", &body).await
}

#[tokio::test]
async fn broken_yaml_is_a_bad_request() {
    let subject = Subject::new().await;
    let status = refused(&subject, "POST", "", YAML, "a: [b\nc").await;
    let text = "the object provided is unrecognized (must be of type ConfigMap): ";
    is(&status, 400, "BadRequest", text);
    assert!(status.message.contains("yaml"), "{}", status.message);
}

#[tokio::test]
async fn a_body_that_is_empty_or_text_or_two_objects_is_a_bad_request() {
    let subject = Subject::new().await;
    for body in ["", "hello", "{\"metadata\":{\"name\":\"x\"}} {}"] {
        let status = refused(&subject, "POST", "", JSON, body).await;
        is(&status, 400, "BadRequest", "couldn't get version/kind; json parse error: ");
    }
}

#[tokio::test]
async fn a_kind_is_text() {
    let body = json!({"kind": 5, "metadata": {"name": "x"}});
    let status = refused_create("", &body).await;
    is(&status, 400, "BadRequest", "couldn't get version/kind; json parse error: ");
    assert!(status.message.contains("Go struct field .kind of type string"), "{}", status.message);
}

#[tokio::test]
async fn metadata_is_an_object() {
    let status = refused_create("", &json!({"metadata": "x"})).await;
    is(
        &status,
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ",
    );
}

#[tokio::test]
async fn an_object_too_deep_to_read_is_a_bad_request() {
    let subject = Subject::new().await;
    let depth = 20_000;
    let body = format!("{{\"metadata\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let status = refused(&subject, "POST", "", JSON, body).await;
    is(&status, 400, "BadRequest", "couldn't get version/kind; json parse error: ");
}

#[tokio::test]
async fn a_field_said_twice_is_refused_when_asked_to_be_strict() {
    let subject = Subject::new().await;
    let twice = "{\"metadata\":{\"name\":\"x\",\"name\":\"y\"},\"data\":{\"a\":\"1\",\"a\":\"2\"}}";
    let status = refused(&subject, "POST", "?fieldValidation=Strict", JSON, twice).await;
    let text =
        "strict decoding error: duplicate field \"metadata.name\", duplicate field \"data.a\"";
    is(&status, 400, "BadRequest", text);
    let twice = "metadata:\n  name: one\n  name: two\n";
    let status = refused(&subject, "POST", "?fieldValidation=Strict", YAML, twice).await;
    is(&status, 400, "BadRequest", "key \"name\" already set in map");
}

#[tokio::test]
async fn of_a_field_said_twice_the_last_word_counts() {
    let subject = Subject::new().await;
    let twice = "{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"1\",\"a\":\"2\"}}";
    let url = format!("/api/v1/namespaces/{}/configmaps", subject.namespace);
    let request = http::Request::post(url).header("content-type", JSON);
    let request = request.body(twice.as_bytes().to_vec()).unwrap();
    let made: Value = subject.client.request(request).await.unwrap();
    assert_eq!(made["data"], json!({"a": "2"}));
}

/// On purpose not the same: the real server puts a replacement character in place of bytes that
/// are no text, the embedded one does not change what it was given.
#[tokio::test]
async fn bytes_that_are_no_text_are_not_kept() {
    let subject = Subject::new().await;
    let body = b"{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"\xff\"}}".to_vec();
    if is_embedded() {
        let status = refused(&subject, "POST", "", JSON, body).await;
        is(&status, 400, "BadRequest", "couldn't get version/kind; json parse error: ");
        return;
    }
    let url = format!("/api/v1/namespaces/{}/configmaps", subject.namespace);
    let request = http::Request::post(url).header("content-type", JSON).body(body).unwrap();
    let made: Value = subject.client.request(request).await.unwrap();
    assert_eq!(made["data"], json!({"a": "\u{fffd}"}));
}

#[tokio::test]
async fn a_label_selector_that_cannot_be_read_is_a_bad_request() {
    for selector in ["a%3D%3D%3Db", "a%20in%20b", "-x%3D1", "a%3Eb"] {
        let status = refused_get(&format!("?labelSelector={selector}")).await;
        is(&status, 400, "BadRequest", "unable to parse requirement: ");
    }
    is(&refused_get("?labelSelector=a%3Db!c").await, 400, "BadRequest", "found '!', expected: ");
}

#[tokio::test]
async fn a_version_to_replace_is_a_number() {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "configmap", "x"]);
    let body = "{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"abc\"}}";
    let status = refused(&subject, "PUT", "/x", JSON, body).await;
    assert_eq!(status.code, 500);
    assert!(status.message.contains("strconv.ParseUint: parsing \"abc\""), "{}", status.message);
}

#[tokio::test]
async fn a_patch_of_an_old_version_is_a_conflict() {
    let body = "{\"metadata\":{\"resourceVersion\":\"1\"},\"data\":{\"a\":\"b\"}}";
    let text = "the object has been modified; please apply your changes to the latest version";
    is(&refused_patch("", MERGE, body).await, 409, "Conflict", text);
}

#[tokio::test]
async fn options_of_a_deletion_that_cannot_be_read_are_told() {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "configmap", "x"]);
    for (body, text) in [
        ("{", "couldn't get version/kind; json parse error: "),
        (
            "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}",
            "no kind \"Pod\" is registered for version \"v1\"",
        ),
        ("{\"gracePeriodSeconds\":\"x\"}", "DeleteOptions.gracePeriodSeconds of type int64"),
    ] {
        let status = refused(&subject, "DELETE", "/x", JSON, body).await;
        assert_eq!(status.code, 500, "{}", status.message);
        assert!(status.message.contains(text), "{}", status.message);
    }
    subject.kubectl(&["get", "configmap", "x"]);
}

#[tokio::test]
async fn an_operation_that_does_not_exist_is_invalid() {
    let body = "[{\"op\":\"jump\",\"path\":\"/data\"}]";
    let status = refused_patch("", "application/json-patch+json", body).await;
    is(&status, 422, "Invalid", "the server rejected our request due to an error in our request");
}

#[tokio::test]
async fn what_is_applied_says_what_it_is() {
    let apply = "application/apply-patch+yaml";
    let status = refused_patch("?fieldManager=m", apply, "metadata: {name: x}").await;
    is(&status, 400, "BadRequest", "invalid object type: /, Kind=");
    let status = refused_patch("?fieldManager=m", apply, "a: [b").await;
    is(&status, 400, "BadRequest", "error decoding YAML: ");
}

#[tokio::test]
async fn a_form_of_answer_that_nobody_knows_is_not_acceptable() {
    let subject = Subject::new().await;
    let url = format!("/api/v1/namespaces/{}/configmaps", subject.namespace);
    let request = http::Request::get(url).header("accept", "application/xml");
    let status = refusal(subject.client.request::<Value>(request.body(Vec::new()).unwrap()).await);
    is(&status, 406, "NotAcceptable", "");
}

#[tokio::test]
async fn a_deployment_selects_its_own_pods() {
    let template = json!({"metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mismatch = "spec.template.metadata.labels: Invalid value: {\"a\":\"b\"}: `selector` does not \
                    match template `labels`";
    let status = refused_deployment(json!({"template": template})).await;
    is(&status, 422, "Invalid", "spec.selector: Required value");
    is(&status, 422, "Invalid", mismatch);
    let selector = json!({"matchLabels": {"a": "c"}});
    let status = refused_deployment(json!({"selector": selector, "template": template})).await;
    is(&status, 422, "Invalid", mismatch);
}

#[tokio::test]
async fn a_deployment_wants_a_number_of_pods_with_containers() {
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": []}});
    let selector = json!({"matchLabels": {"a": "b"}});
    let spec = json!({"replicas": -1, "selector": selector, "template": template});
    let status = refused_deployment(spec).await;
    let text = "spec.replicas: Invalid value: -1: must be greater than or equal to 0";
    is(&status, 422, "Invalid", text);
    is(&status, 422, "Invalid", "spec.template.spec.containers: Required value");
}

#[tokio::test]
async fn a_deployment_keeps_its_selector() {
    let subject = Subject::new().await;
    subject.kubectl(&["create", "deployment", "x", "--image", "i", "--replicas", "0"]);
    let patch = json!({"spec": {"selector": {"matchLabels": {"app": "y"}},
        "template": {"metadata": {"labels": {"app": "y"}}}}});
    let (ok, _, err) = subject
        .try_kubectl(&["patch", "deployment", "x", "--type=merge", "-p", &patch.to_string()], None);
    assert!(!ok && err.contains("spec.selector: Invalid value: "), "{err}");
    assert!(err.contains("field is immutable"), "{err}");
}

#[tokio::test]
async fn a_slice_says_its_family_and_holds_addresses() {
    let subject = Subject::new().await;
    let path = "/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices";
    let slice = json!({"metadata": {"name": "x"}, "endpoints": []});
    is(&refused_at(&subject, path, &slice).await, 422, "Invalid", "addressType: Required value");
    let slice = json!({"metadata": {"name": "x"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["nope"]}]});
    let text = "endpoints[0].addresses[0]: Invalid value: \"nope\": must be a valid IP address";
    is(&refused_at(&subject, path, &slice).await, 422, "Invalid", text);
}
