//! One request: route, verb, answer.

use super::accept::{self, Form};
use super::answer::{self, Style};
use super::body::{self, Read};
use super::query::Query;
use super::route::{ObjectPath, Route, route};
use super::{discovery, openapi, protobuf};
use crate::failure::Failure;
use crate::object::text;
use crate::patch::Patch;
use crate::seeds::{self, Redirected};
use crate::store::{Key, Stored};
use crate::verbs::{Api, Deleted, Listing, Target, WriteOptions, Written};
use axum::body::Body;
use bytes::Bytes;
use hyper::{Method, Request, Response, header};
use serde_json::{Value, json};
use std::sync::Arc;

/// The largest body taken, as in the real API.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// Answers a request. `trusted` says whether the client proved who it is.
pub(super) async fn handle(api: &Api, trusted: bool, request: Request<Body>) -> Response<Body> {
    let answer = match route(request.uri().path()) {
        Route::Health => Ok(answer::text("ok")),
        Route::Version => Ok(answer::json_value(200, &discovery::version())),
        _ if !trusted => Err(Failure::unauthorized()),
        Route::Object(path) => handle_object(api, &path, request).await,
        other => handle_document(api, &other, &request),
    };
    answer.unwrap_or_else(|failure| answer::failure(&failure))
}

/// Discovery and OpenAPI.
fn handle_document(
    api: &Api,
    route: &Route,
    request: &Request<Body>,
) -> Result<Response<Body>, Failure> {
    if request.method() != Method::GET {
        return Err(Failure::method_not_allowed());
    }
    let snapshot = api.registry.snapshot();
    let aggregated = matches!(accept::negotiate(accepted(request)), Ok(Form::Aggregated));
    let document = match route {
        Route::CoreVersions | Route::Groups if aggregated => {
            let core = *route == Route::CoreVersions;
            return Ok(aggregated_response(&discovery::aggregated(&snapshot, core)));
        }
        Route::CoreVersions => Some(discovery::core_versions()),
        Route::Groups => Some(discovery::groups(&snapshot)),
        Route::Group(name) => discovery::group(&snapshot, name).map(as_api_group),
        Route::Resources { group, version } => discovery::resources(&snapshot, group, version),
        Route::OpenApiIndex => Some(openapi::index(&snapshot)),
        Route::OpenApi { group, version } => openapi::document(&snapshot, group, version),
        Route::Health | Route::Version | Route::Object(_) | Route::Unknown => None,
    };
    let document = document.ok_or_else(Failure::no_such_path)?;
    Ok(answer::json_value(200, &document))
}

fn as_api_group(mut group: Value) -> Value {
    group["kind"] = "APIGroup".into();
    group["apiVersion"] = "v1".into();
    group
}

/// Clients tell the aggregated form by its content type.
fn aggregated_response(document: &Value) -> Response<Body> {
    let mut response = answer::json_value(200, document);
    let media = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(media));
    response
}

fn accepted(request: &Request<Body>) -> &str {
    request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or("")
}

/// The media type of the body, without parameters.
fn content_type(request: &Request<Body>) -> String {
    let value = request.headers().get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok());
    let media = value.unwrap_or("").split(';').next().unwrap_or("");
    media.trim().to_ascii_lowercase()
}

/// `kubectl` of `kubectl/v1.34 (linux/amd64)`.
fn agent(request: &Request<Body>) -> String {
    let value = request.headers().get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    value.unwrap_or("").split('/').next().unwrap_or("").chars().take(128).collect()
}

/// A request about objects, parsed.
struct Call<'a> {
    api: &'a Api,
    target: Target,
    query: Query,
    style: Style,
    media: String,
    /// The first word of the client's own name.
    agent: String,
}

async fn handle_object(
    api: &Api,
    path: &ObjectPath,
    request: Request<Body>,
) -> Result<Response<Body>, Failure> {
    let target = seeds::named(&api.store, find_target(api, path)?, request.method())?;
    let query = Query::parse(request.uri())?;
    let form = accept::negotiate(accepted(&request))?;
    let style = Style { form, include: query.include() };
    let media = content_type(&request);
    let agent = agent(&request);
    let method = request.method().clone();
    let body = axum::body::to_bytes(request.into_body(), BODY_LIMIT)
        .await
        .map_err(|_| Failure::too_large(BODY_LIMIT))?;
    let request = Redirected { target, method, media, body };
    let Redirected { target, method, media, body } = seeds::redirect(&api.store, request);
    let call = Call { api, target, query, style, media, agent };
    match (!call.target.name.is_empty(), call.target.subresource.clone().as_deref()) {
        (false, _) => call.on_collection(&method, &body).await,
        (true, None | Some("status")) => call.on_object(&method, &body).await,
        (true, Some("scale")) => call.on_scale(&method, &body).await,
        (true, Some(other)) => call.on_subresource(other, &method, &body).await,
    }
}

/// The target of a path, if there is such a resource and subresource.
fn find_target(api: &Api, path: &ObjectPath) -> Result<Target, Failure> {
    let snapshot = api.registry.snapshot();
    let namespace = path.namespace.as_deref();
    let plural = seeds::announced(&path.group, &path.plural);
    let mut target = Target::find(&snapshot, &path.group, &path.version, plural, namespace)?;
    target.name = path.name.clone().unwrap_or_default();
    target.subresource = path.subresource.clone();
    target.home = namespace.and_then(|name| home(api, name));
    let nameless_scope = target.resource.namespaced && namespace.is_none() && path.name.is_some();
    let offered = match path.subresource.as_deref() {
        None => true,
        Some("status") => target.version().status_subresource,
        Some("scale") => target.version().scale.is_some(),
        Some("binding") => target.is_core("pods"),
        Some("finalize") => target.is_core("namespaces"),
        Some(_) => false,
    };
    if nameless_scope || !offered { Err(Failure::no_such_path()) } else { Ok(target) }
}

fn home(api: &Api, namespace: &str) -> Option<Arc<Stored>> {
    api.store.read().get(&Key::new("namespaces", "", namespace)).cloned()
}

impl Call<'_> {
    async fn on_collection(
        &self,
        method: &Method,
        body: &Bytes,
    ) -> Result<Response<Body>, Failure> {
        match *method {
            Method::GET if self.query.is_watch() => {
                let options = self.query.watch(&self.target)?;
                let events = self.api.watch(&self.target, options)?;
                Ok(answer::watch(self.target.clone(), events, self.style))
            }
            Method::GET => {
                let listing = self.api.list(&self.target, &self.query.list(&self.target)?)?;
                Ok(answer::list(&self.target, &listing, self.style))
            }
            Method::POST => {
                if self.target.resource.namespaced && self.target.namespace.is_empty() {
                    return Err(Failure::method_not_allowed());
                }
                let (object, options) = self.read_write(body)?;
                let written = self.api.create(&self.target, object, &options).await?;
                Ok(self.written(&written))
            }
            Method::DELETE => {
                let options = self.query.delete(&self.read_options(body)?)?;
                let listing = self.query.list(&self.target)?;
                let items = self.api.delete_collection(&self.target, &listing, &options).await?;
                let revision = self.api.store.read().revision();
                let listing =
                    Listing { items, revision, continue_token: String::new(), remaining: None };
                Ok(answer::list(&self.target, &listing, self.style))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn on_object(&self, method: &Method, body: &Bytes) -> Result<Response<Body>, Failure> {
        match *method {
            Method::GET => {
                let stored = self.api.get(&self.target)?;
                Ok(answer::object(200, &self.target, &stored, self.style))
            }
            Method::PUT => {
                let (object, options) = self.read_write(body)?;
                let written = self.api.update(&self.target, object, &options).await?;
                Ok(self.written(&written))
            }
            Method::PATCH => {
                let patch = Patch::parse(&self.media, body)?;
                let written = self.api.patch(&self.target, patch, &self.options()?).await?;
                Ok(self.written(&written))
            }
            Method::DELETE if self.target.subresource.is_none() => self.delete(body).await,
            _ => Err(Failure::method_not_allowed()),
        }
    }

    async fn delete(&self, body: &Bytes) -> Result<Response<Body>, Failure> {
        let options = self.query.delete(&self.read_options(body)?)?;
        match self.api.delete(&self.target, &options).await? {
            Deleted::Marked(stored) => Ok(answer::object(200, &self.target, &stored, self.style)),
            Deleted::Gone(stored) if self.returns_deleted() => {
                Ok(answer::object(200, &self.target, &stored, self.style))
            }
            Deleted::Gone(stored) => {
                Ok(answer::json_value(200, &answer::deleted(&self.target, &stored)))
            }
        }
    }

    /// Kinds whose deletion answers with the object, as in the real API.
    fn returns_deleted(&self) -> bool {
        ["pods", "services", "serviceaccounts"].iter().any(|plural| self.target.is_core(plural))
    }

    async fn on_scale(&self, method: &Method, body: &Bytes) -> Result<Response<Body>, Failure> {
        let scale = match *method {
            Method::GET => self.api.scale(&self.target)?,
            Method::PUT => {
                let given = self.read(body)?;
                self.api.set_scale(&self.target, |_| Ok(given), &self.options()?).await?
            }
            Method::PATCH => {
                let patch = Patch::parse(&self.media, body)?;
                let target = self.target.clone();
                let edit = move |scale| patch.apply_to(&scale, &target.version().schema);
                self.api.set_scale(&self.target, edit, &self.options()?).await?
            }
            _ => return Err(Failure::method_not_allowed()),
        };
        Ok(answer::json_value(200, &scale))
    }

    async fn on_subresource(
        &self,
        name: &str,
        method: &Method,
        body: &Bytes,
    ) -> Result<Response<Body>, Failure> {
        match (name, method) {
            ("binding", &Method::POST) => {
                self.api.bind(&self.target, &self.read(body)?, &self.options()?).await?;
                Ok(answer::json_value(201, &answer::success(&json!({}))))
            }
            ("finalize", &Method::PUT) => {
                let namespace = self.read(body)?;
                let written = self.api.finalize(&self.target, &namespace, &self.options()?).await?;
                Ok(self.written(&written))
            }
            _ => Err(Failure::method_not_allowed()),
        }
    }

    fn options(&self) -> Result<WriteOptions, Failure> {
        self.query.write(&self.target, &self.agent)
    }

    fn written(&self, written: &Written) -> Response<Body> {
        let code = if written.created { 201 } else { 200 };
        let mut warnings = written.warnings.clone();
        warnings.extend(self.target.version().deprecation.clone());
        let response = answer::object(code, &self.target, &written.object, self.style);
        answer::with_warnings(response, &warnings)
    }

    /// The object in the body, and the options of writing it.
    fn read_write(&self, body: &Bytes) -> Result<(Value, WriteOptions), Failure> {
        let read = self.read_whole(body)?;
        let options = WriteOptions { doubled: read.doubled, ..self.options()? };
        Ok((read.value, options))
    }

    /// The object in the body.
    fn read(&self, body: &Bytes) -> Result<Value, Failure> {
        self.read_whole(body).map(|read| read.value)
    }

    fn read_whole(&self, body: &Bytes) -> Result<Read, Failure> {
        match self.media.as_str() {
            "application/json" | "" => {
                body::json(body).map_err(|error| self.unrecognized("json", &error))
            }
            "application/yaml" => {
                body::yaml(body).map_err(|error| self.unrecognized("yaml", &error))
            }
            "application/vnd.kubernetes.protobuf" => protobuf::read(body)
                .map(|value| Read { value, doubled: Vec::new() })
                .map_err(|why| self.unrecognized("protobuf", &why)),
            _ => Err(Failure::unsupported_media(BODY_TYPES)),
        }
    }

    fn unrecognized(&self, format: &str, error: &dyn std::fmt::Display) -> Failure {
        Failure::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; \
             {format} parse error: {error}",
            self.target.resource.kind
        ))
    }

    /// The options in the body of a deletion, which may be missing. The real API does not call
    /// bad ones a bad request.
    fn read_options(&self, body: &Bytes) -> Result<Value, Failure> {
        if body.is_empty() {
            return Ok(Value::Null);
        }
        let options = self.read(body).map_err(|failure| match failure.code {
            400 => Failure::unexplained(from_parser(&failure.message)),
            _ => failure,
        })?;
        check_options(&options)?;
        Ok(options)
    }
}

/// What a parser said, without what it was to read.
fn from_parser(message: &str) -> &str {
    message.find("couldn't get version/kind").map_or(message, |start| &message[start..])
}

fn check_options(options: &Value) -> Result<(), Failure> {
    let (kind, version) = (text(options, "kind"), text(options, "apiVersion"));
    if !matches!(kind, "" | "DeleteOptions") {
        return Err(Failure::unexplained(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme of deletions"
        )));
    }
    match options.get("gracePeriodSeconds") {
        None | Some(Value::Null | Value::Number(_)) => Ok(()),
        Some(_) => Err(Failure::unexplained(
            "json: cannot unmarshal this into Go struct field DeleteOptions.gracePeriodSeconds of \
             type int64",
        )),
    }
}
