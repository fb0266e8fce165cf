//! Our networks as the seeds write them, for those who wrote them that way and read them back.

use serde_json::Value;

/// A version of the seeds' `Network`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeedVersion {
    /// `v1`
    Core,
    /// `arktos.futurewei.com/v1`
    Arktos,
}

impl SeedVersion {
    /// Every version there is.
    pub const ALL: [SeedVersion; 2] = [SeedVersion::Core, SeedVersion::Arktos];

    /// The version that an `apiVersion` names.
    pub fn of(api_version: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|version| version.api_version() == api_version)
    }

    /// How manifests name it.
    pub fn api_version(self) -> &'static str {
        match self {
            SeedVersion::Core => "v1",
            SeedVersion::Arktos => "arktos.futurewei.com/v1",
        }
    }

    /// How this version spells the VPC's name.
    fn vpc_field(self) -> &'static str {
        match self {
            SeedVersion::Core => "vpc-id",
            SeedVersion::Arktos => "vpcID",
        }
    }

    /// A network of ours in this version. Converting it gives the network again.
    pub fn show(self, network: &Value) -> Value {
        let mut shown = network.clone();
        shown["apiVersion"] = self.api_version().into();
        let full = network["metadata"]["name"].as_str().unwrap_or_default();
        if let Some((tenant, name)) = full.split_once('.') {
            shown["metadata"]["name"] = name.into();
            shown["metadata"]["tenant"] = tenant.into();
        }
        let spec = shown["spec"].as_object_mut();
        if let Some(spec) = spec {
            spec.remove("tenant");
            if let Some(vpc) = spec.remove("vpcID") {
                spec.insert(self.vpc_field().to_owned(), vpc);
            }
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::API_VERSION;
    use crate::{Place, Settings, examine};
    use serde_json::json;

    fn network() -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": "Network",
            "metadata": {"name": "acme.vpc-1", "uid": "u"},
            "spec": {"tenant": "acme", "type": "vpc", "vpcID": "v", "cidrs": ["10.1.0.0/16"]},
            "status": {"phase": "Active"},
        })
    }

    #[test]
    fn a_network_is_shown_as_its_version_writes_it() {
        let shown = SeedVersion::Core.show(&network());
        assert_eq!(shown["apiVersion"], "v1");
        assert_eq!(shown["metadata"], json!({"name": "vpc-1", "tenant": "acme", "uid": "u"}));
        let spec = json!({"type": "vpc", "vpc-id": "v", "cidrs": ["10.1.0.0/16"]});
        assert_eq!(shown["spec"], spec);
    }

    #[test]
    fn what_is_shown_converts_to_what_it_was() {
        for version in SeedVersion::ALL {
            let mut shown = version.show(&network());
            let findings = examine(&shown, &Place::of(&shown), &Settings::default()).unwrap();
            findings.edits.iter().for_each(|edit| edit.apply(&mut shown));
            assert_eq!(shown, network());
        }
    }
}
