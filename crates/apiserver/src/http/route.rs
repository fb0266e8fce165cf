//! From a path to what it names. Pure; knows the shape of Kubernetes' paths and nothing else.

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    /// `/healthz`, `/livez`, `/readyz`.
    Health,
    Version,
    /// `/api`
    CoreVersions,
    /// `/apis`
    Groups,
    /// `/apis/{group}`
    Group(String),
    /// `/api/v1` or `/apis/{group}/{version}`
    Resources {
        group: String,
        version: String,
    },
    /// `/openapi/v3`
    OpenApiIndex,
    /// `/openapi/v3/…` of one group and version.
    OpenApi {
        group: String,
        version: String,
    },
    Object(ObjectPath),
    Unknown,
}

/// A path to a collection, an object or a subresource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ObjectPath {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

/// Parses a path.
pub(super) fn route(path: &str) -> Route {
    let decoded: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(decode).collect();
    let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["healthz" | "livez" | "readyz", ..] => Route::Health,
        ["version"] => Route::Version,
        ["api"] => Route::CoreVersions,
        ["apis"] => Route::Groups,
        ["apis", group] => Route::Group((*group).to_owned()),
        ["api", version] => resources("", version),
        ["apis", group, version] => resources(group, version),
        ["openapi", "v3"] => Route::OpenApiIndex,
        ["openapi", "v3", "api", version] => open_api("", version),
        ["openapi", "v3", "apis", group, version] => open_api(group, version),
        ["api", version, rest @ ..] => object("", version, rest),
        ["apis", group, version, rest @ ..] => object(group, version, rest),
        _ => Route::Unknown,
    }
}

fn resources(group: &str, version: &str) -> Route {
    Route::Resources { group: group.to_owned(), version: version.to_owned() }
}

fn open_api(group: &str, version: &str) -> Route {
    Route::OpenApi { group: group.to_owned(), version: version.to_owned() }
}

fn object(group: &str, version: &str, rest: &[&str]) -> Route {
    let base = ObjectPath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ObjectPath::default()
    };
    let (namespace, rest) = match rest {
        // The namespace itself, and its subresources.
        ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
            (None, rest)
        }
        ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
        _ => (None, rest),
    };
    let owned = |text: &&str| Some((*text).to_owned());
    match rest {
        [plural] => Route::Object(ObjectPath { namespace, plural: (*plural).to_owned(), ..base }),
        [plural, name] => Route::Object(ObjectPath {
            namespace,
            plural: (*plural).to_owned(),
            name: owned(name),
            ..base
        }),
        [plural, name, subresource] => Route::Object(ObjectPath {
            namespace,
            plural: (*plural).to_owned(),
            name: owned(name),
            subresource: owned(subresource),
            ..base
        }),
        _ => Route::Unknown,
    }
}

/// Undoes percent encoding; what is not encoded well stays as it is.
fn decode(part: &str) -> String {
    let bytes = part.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut place = 0;
    while place < bytes.len() {
        let hex = (bytes[place] == b'%').then(|| part.get(place + 1..place + 3)).flatten();
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                plain.push(byte);
                place += 3;
            }
            None => {
                plain.push(bytes[place]);
                place += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> ObjectPath {
        match route(text) {
            Route::Object(path) => path,
            other => panic!("{text} is {other:?}"),
        }
    }

    #[test]
    fn a_namespaced_object_and_its_subresource() {
        let found = path("/api/v1/namespaces/a/pods/web/status");
        assert_eq!(found.namespace.as_deref(), Some("a"));
        assert_eq!(found.plural, "pods");
        assert_eq!(found.name.as_deref(), Some("web"));
        assert_eq!(found.subresource.as_deref(), Some("status"));
    }

    #[test]
    fn a_namespace_is_an_object_of_its_own() {
        let found = path("/api/v1/namespaces/a/finalize");
        assert_eq!((found.plural.as_str(), found.name.as_deref()), ("namespaces", Some("a")));
        assert_eq!(found.subresource.as_deref(), Some("finalize"));
        assert_eq!(path("/api/v1/namespaces/a").namespace, None);
    }

    #[test]
    fn a_cluster_wide_custom_resource() {
        let found = path("/apis/atoll.dev/v1/networks/acme.default");
        assert_eq!((found.group.as_str(), found.version.as_str()), ("atoll.dev", "v1"));
        assert_eq!(found.name.as_deref(), Some("acme.default"));
    }

    #[test]
    fn discovery_and_openapi_have_paths_of_their_own() {
        assert_eq!(route("/api"), Route::CoreVersions);
        assert_eq!(route("/apis/"), Route::Groups);
        assert_eq!(route("/api/v1"), resources("", "v1"));
        assert_eq!(route("/openapi/v3/apis/apps/v1"), open_api("apps", "v1"));
        assert_eq!(route("/readyz"), Route::Health);
        assert_eq!(route("/nothing/here"), Route::Unknown);
    }

    #[test]
    fn names_may_be_percent_encoded() {
        assert_eq!(path("/api/v1/nodes/a%3Ab").name.as_deref(), Some("a:b"));
        assert_eq!(path("/api/v1/nodes/a%zz").name.as_deref(), Some("a%zz"));
    }
}
