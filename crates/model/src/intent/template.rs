//! The template from which a tenant gets its default network.
//!
//! It is a `Network` manifest in which `{{tenant}}` stands for the tenant's name. Whatever it says
//! of tenant or apiVersion, the network is the tenant's own and is called `default`.

use atoll_api::{self as api, Reason};
use atoll_types::Label;
use serde::Deserialize;
use serde_yaml_ng::Value;

use super::Malformed;

/// What is known of the template file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Template {
    /// No file was named: tenants get no default network.
    #[default]
    None,
    /// The file cannot be read; the text says why.
    Unreadable(String),
    /// Its text.
    Text(String),
}

/// Why a template gives no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// The file cannot be read.
    #[error("cannot read the template for default networks: {0}")]
    Unreadable(String),
    /// Not a Network manifest.
    #[error("the template for default networks is no Network manifest: {0}")]
    Malformed(String),
    /// It names a network other than `default`.
    #[error("the template for default networks names the network {0:?}; it must be \"default\"")]
    OtherName(String),
}

impl From<TemplateError> for Malformed {
    fn from(error: TemplateError) -> Self {
        Malformed::new(Reason::TemplateInvalid, error.to_string())
    }
}

#[derive(Deserialize)]
struct Manifest {
    kind: String,
    #[serde(default)]
    metadata: Metadata,
    spec: Spec,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(default)]
    name: Option<Value>,
}

#[derive(Deserialize)]
struct Spec {
    #[serde(rename = "type")]
    type_: String,
    #[serde(default, rename = "vpcID", alias = "vpc-id")]
    vpc_id: Option<Value>,
    #[serde(default)]
    cidrs: Vec<String>,
    #[serde(default)]
    isolation: Option<api::NetworkIsolation>,
    #[serde(default)]
    dns: Option<api::NetworkDns>,
    #[serde(default)]
    egress: Option<api::NetworkEgress>,
}

impl Template {
    /// The default network that the template gives to `tenant`, if there is a template.
    pub fn render(&self, tenant: &Label) -> Result<Option<api::NetworkSpec>, TemplateError> {
        match self {
            Template::None => Ok(None),
            Template::Unreadable(why) => Err(TemplateError::Unreadable(why.clone())),
            Template::Text(text) => render(text, tenant).map(Some),
        }
    }
}

fn render(text: &str, tenant: &Label) -> Result<api::NetworkSpec, TemplateError> {
    let malformed = |error: String| TemplateError::Malformed(error);
    let filled = text.replace("{{tenant}}", tenant.as_str());
    let manifest: Manifest =
        serde_yaml_ng::from_str(&filled).map_err(|error| malformed(error.to_string()))?;
    if manifest.kind != "Network" {
        return Err(malformed(format!("its kind is {:?}", manifest.kind)));
    }
    check_name(manifest.metadata.name.as_ref())?;
    Ok(api::NetworkSpec {
        tenant: tenant.to_string(),
        type_: manifest.spec.type_,
        vpc_id: manifest.spec.vpc_id.as_ref().and_then(scalar),
        cidrs: manifest.spec.cidrs,
        isolation: manifest.spec.isolation,
        dns: manifest.spec.dns,
        egress: manifest.spec.egress,
    })
}

fn check_name(name: Option<&Value>) -> Result<(), TemplateError> {
    match name.and_then(scalar) {
        Some(name) if name != "default" && !name.ends_with(".default") => {
            Err(TemplateError::OtherName(name))
        }
        Some(_) | None => Ok(()),
    }
}

/// The text of a scalar: a tenant may be called `7` or `true`, which YAML takes for something else.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(text: &str, tenant: &str) -> Result<Option<api::NetworkSpec>, TemplateError> {
        Template::Text(text.into()).render(&tenant.parse().unwrap())
    }

    #[test]
    fn the_tenants_name_is_filled_in_and_a_written_tenant_does_not_count() {
        let text = "apiVersion: arktos.futurewei.com/v1\nkind: Network\nmetadata:\n  name: default\n  \
                    tenant: mallory\nspec:\n  tenant: mallory\n  type: vpc\n  vpc-id: vpc-{{tenant}}\n  \
                    cidrs: [10.0.0.0/16]\n";
        let spec = rendered(text, "acme").unwrap().unwrap();
        assert_eq!(spec.tenant, "acme");
        assert_eq!(spec.vpc_id.as_deref(), Some("vpc-acme"));
        assert_eq!(spec.cidrs, ["10.0.0.0/16"]);
    }

    #[test]
    fn a_tenant_may_have_a_name_that_yaml_takes_for_a_number() {
        let text = "kind: Network\nspec: {type: vpc, vpcID: {{tenant}}, cidrs: [10.0.0.0/16]}";
        assert_eq!(rendered(text, "7").unwrap().unwrap().vpc_id.as_deref(), Some("7"));
    }

    #[test]
    fn a_flat_network_needs_no_other_field() {
        let spec = rendered("kind: Network\nspec: {type: flat}", "acme").unwrap().unwrap();
        assert_eq!(spec.type_, "flat");
    }

    #[test]
    fn no_template_gives_no_network() {
        assert_eq!(Template::None.render(&"acme".parse().unwrap()), Ok(None));
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said() {
        let error = |text| rendered(text, "acme").unwrap_err().to_string();
        assert!(error("kind: Network").contains("missing field `spec`"));
        assert!(error("kind: Pod\nspec: {type: vpc}").contains("its kind is \"Pod\""));
        assert!(error("{").starts_with("the template for default networks is no Network manifest"));
        let named = error("kind: Network\nmetadata: {name: main}\nspec: {type: vpc}");
        assert!(named.contains("\"main\""), "{named}");
        let unreadable = Template::Unreadable("no such file".into());
        let error = unreadable.render(&"acme".parse().unwrap()).unwrap_err();
        assert!(error.to_string().ends_with("no such file"));
    }
}
