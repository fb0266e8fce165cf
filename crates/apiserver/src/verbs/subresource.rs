//! Subresources that are not just a part of the object: binding, scale, finalize.

use super::update::change_in;
use super::{Api, Target, WriteOptions, Written};
use crate::clock;
use crate::failure::Failure;
use crate::kinds;
use crate::object;
use serde_json::{Value, json};

impl Api {
    /// Puts a pod on the node the binding names.
    pub(crate) async fn bind(
        &self,
        target: &Target,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<(), Failure> {
        let node = object::text(binding, "target.name").to_owned();
        if node.is_empty() {
            let cause = crate::failure::Cause::required("target.name", "");
            let about = crate::failure::About { group: "", kind: "Binding", name: &target.name };
            return Err(Failure::invalid(about, &[cause]));
        }
        let (target, dry_run) = (target.clone(), options.dry_run);
        self.store
            .transact(move |tx| {
                let current =
                    tx.get(&target.key()).ok_or_else(|| Failure::not_found(target.about()))?;
                check_bindable(&target, &current.value, &node)?;
                let mut pod = current.value.clone();
                kinds::bind(&mut pod, &node, &clock::seconds(clock::now()));
                tx.put(&current.key, pod);
                if dry_run {
                    tx.discard();
                }
                Ok(())
            })
            .await
    }

    /// The `finalize` subresource of namespaces: sets `spec.finalizers`.
    pub(crate) async fn finalize(
        &self,
        target: &Target,
        body: &Value,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let finalizers = object::at(body, "spec.finalizers").cloned().unwrap_or_else(|| json!([]));
        let (target, options) = (target.clone(), options.clone());
        let object = self
            .store
            .transact(move |tx| {
                let current =
                    tx.get(&target.key()).ok_or_else(|| Failure::not_found(target.about()))?;
                let mut namespace = current.value.clone();
                object::set(&mut namespace, "spec.finalizers", finalizers);
                let stored = tx.put(&current.key, namespace);
                if super::update::may_go(&stored.value) {
                    tx.remove(&current.key);
                }
                if options.dry_run {
                    tx.discard();
                }
                Ok(stored)
            })
            .await?;
        Ok(Written { object, created: false, warnings: Vec::new() })
    }

    /// The `scale` of an object.
    pub(crate) fn scale(&self, target: &Target) -> Result<Value, Failure> {
        let stored = self.get(target)?;
        scale_of(target, &stored.value)
    }

    /// Sets the number of replicas.
    pub(crate) async fn set_scale(
        &self,
        target: &Target,
        edit: impl FnOnce(Value) -> Result<Value, Failure> + Send + 'static,
        options: &WriteOptions,
    ) -> Result<Value, Failure> {
        let (target, options) = (target.clone(), options.clone());
        self.store
            .transact(move |tx| {
                let current =
                    tx.get(&target.key()).ok_or_else(|| Failure::not_found(target.about()))?;
                let scale = edit(scale_of(&target, &current.value)?)?;
                let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
                let path = scale_paths(&target)?.spec_replicas.trim_start_matches('.').to_owned();
                let mut object = current.value.clone();
                object::set(&mut object, &path, replicas);
                let whole = target.clone().whole();
                let stored = change_in(tx, &whole, &current, object, &options)?;
                scale_of(&target, &stored.value)
            })
            .await
    }
}

fn check_bindable(target: &Target, pod: &Value, node: &str) -> Result<(), Failure> {
    let bound = object::text(pod, "spec.nodeName");
    if !bound.is_empty() {
        let why = format!("pod {} is already assigned to node {bound:?}", target.name);
        return Err(Failure::conflict(target.about(), &why));
    }
    if object::is_terminating(pod) {
        let why = format!("pod {} is being deleted, cannot be assigned to {node:?}", target.name);
        return Err(Failure::conflict(target.about(), &why));
    }
    Ok(())
}

fn scale_paths(target: &Target) -> Result<&crate::registry::ScalePaths, Failure> {
    target.version().scale.as_ref().ok_or_else(Failure::no_such_path)
}

fn scale_of(target: &Target, object: &Value) -> Result<Value, Failure> {
    let paths = scale_paths(target)?;
    let number = |path: &str| {
        object::at(object, path.trim_start_matches('.')).and_then(Value::as_i64).unwrap_or(0)
    };
    let metadata: serde_json::Map<String, Value> =
        ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"]
            .iter()
            .filter_map(|field| {
                Some(((*field).to_owned(), object::metadata(object).get(*field)?.clone()))
            })
            .collect();
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
        "spec": {"replicas": number(&paths.spec_replicas)},
        "status": {"replicas": number(&paths.status_replicas)},
    });
    if let Some(selector) = selector_text(paths, object) {
        scale["status"]["selector"] = selector.into();
    }
    Ok(scale)
}

fn selector_text(paths: &crate::registry::ScalePaths, object: &Value) -> Option<String> {
    if let Some(path) = &paths.selector {
        return object::at(object, path.trim_start_matches('.'))?.as_str().map(str::to_owned);
    }
    let labels = object::at(object, "spec.selector.matchLabels")?.as_object()?;
    let terms = labels.iter().filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?)));
    Some(terms.collect::<Vec<_>>().join(","))
}
