//! `deploy/chart/`: the manifests of `deploy/` as a chart, with marks where its values go. Its
//! definitions are the same files, by a link.
//!
//! The rule of this file: a chart without values is what the manifests say. So its templates are
//! written from them, and each mark takes the place of words that must be there.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};

const FOLDER: &str = "deploy/chart";

/// A manifest, words in it, and the template that takes their place.
type Mark = (&'static str, &'static str, &'static str);

const MARKS: [Mark; 8] = [
    ("agent.yaml", "image: atoll.dev/atoll:0.1.0", "image: {{ .Values.image | quote }}"),
    ("controller.yaml", "image: atoll.dev/atoll:0.1.0", "image: {{ .Values.image | quote }}"),
    (
        "agent.yaml",
        "            - --cluster-dns=10.96.0.10 # as in kubelet's clusterDNS\n",
        "            - --cluster-dns={{ join \",\" .Values.clusterDNS }} # as in kubelet's clusterDNS
            {{- with .Values.clusterDomain }}
            - --cluster-domain={{ . }}
            {{- end }}
            {{- with .Values.dnsUpstream }}
            - --dns-upstream={{ join \",\" . }}
            {{- end }}
            {{- with .Values.egressDeny }}
            - --egress-deny={{ join \",\" . }}
            {{- end }}
            {{- with .Values.agentMetricsAddress }}
            - --metrics-address={{ . }}
            {{- end }}
            {{- with .Values.infraMode }}
            - --infra-mode={{ . }}
            {{- end }}
            {{- with .Values.tunnelPort }}
            - --tunnel-port={{ . }}
            {{- end }}
            {{- with .Values.delegate }}
            - --cni-delegate={{ . }}
            {{- end }}
            {{- with .Values.cniVersion }}
            - --cni-version={{ . }}
            {{- end }}
            {{- with .Values.plainNetwork }}
            - --plain-network={{ join \",\" . }}
            - --plain-services={{ $.Values.plainServices }}
            {{- end }}
",
    ),
    (
        "controller.yaml",
        "            - --dns-image=atoll.dev/atoll:0.1.0",
        "            - --dns-image={{ .Values.image }}",
    ),
    (
        "controller.yaml",
        "            - --default-network-template-path=/etc/atoll/default-network/network.yaml
            - --metrics-address=0.0.0.0:9641
",
        "            {{- if .Values.defaultNetworkTemplate }}
            - --default-network-template-path=/etc/atoll/default-network/network.yaml
            {{- end }}
            {{- with .Values.metricsAddress }}
            - --metrics-address={{ . }}
            {{- end }}
            {{- with .Values.flatCIDRs }}
            - --flat-cidrs={{ join \",\" . }}
            {{- end }}
            {{- with .Values.serviceCIDRs }}
            - --service-cidrs={{ join \",\" . }}
            {{- end }}
            {{- if not (kindIs \"invalid\" .Values.addressRest) }}
            - --address-rest={{ int64 .Values.addressRest }}
            {{- end }}
            {{- if not (kindIs \"invalid\" .Values.addressKeep) }}
            - --address-keep={{ int64 .Values.addressKeep }}
            {{- end }}
",
    ),
    (
        "controller.yaml",
        "      annotations:
        prometheus.io/scrape: \"true\"
        prometheus.io/port: \"9641\"
",
        "      {{- with .Values.metricsAddress }}
      annotations:
        prometheus.io/scrape: \"true\"
        prometheus.io/port: {{ splitList \":\" . | last | quote }}
      {{- end }}
",
    ),
    (
        "metrics.yaml",
        "ports: [{name: metrics, port: 9641}]",
        "ports: [{name: metrics, port: {{ splitList \":\" .Values.metricsAddress | last }} }]",
    ),
    (
        "default-network.yaml",
        "  network.yaml: |
    apiVersion: atoll.dev/v1alpha1
    kind: Network
    metadata:
      name: default
    spec:
      type: vpc
      cidrs: [10.0.0.0/16]
",
        "  network.yaml: {{ .Values.defaultNetworkTemplate | quote }}
",
    ),
];

/// A manifest, and the value without which the chart has nothing of it.
const CONDITIONS: [(&str, &str); 2] =
    [("default-network.yaml", "defaultNetworkTemplate"), ("metrics.yaml", "metricsAddress")];

/// Writes every file that comes from a manifest.
pub(crate) fn write(root: &Path) -> Result<()> {
    for (name, text) in files(root)? {
        let path = root.join(FOLDER).join(&name);
        std::fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
        std::fs::write(path, text).with_context(|| format!("cannot write {FOLDER}/{name}"))?;
    }
    Ok(())
}

/// Fails where a file differs from what [`write`] would leave, or the version from ours.
pub(crate) fn check(root: &Path) -> Result<()> {
    for (name, text) in files(root)? {
        let present = std::fs::read_to_string(root.join(FOLDER).join(&name)).unwrap_or_default();
        ensure!(
            present == text,
            "{FOLDER}/{name} is stale: run `make generate` and commit the result"
        );
    }
    let chart = std::fs::read_to_string(root.join(FOLDER).join("Chart.yaml"))?;
    let version = concat!("\nappVersion: ", env!("CARGO_PKG_VERSION"), "\n");
    ensure!(chart.contains(version), "{FOLDER}/Chart.yaml has another version than this program");
    Ok(())
}

fn files(root: &Path) -> Result<BTreeMap<String, String>> {
    let read = |path: String| {
        let file = root.join("deploy").join(&path);
        std::fs::read_to_string(file).with_context(|| format!("cannot read deploy/{path}"))
    };
    let listed = read("kustomization.yaml".into())?;
    let mut files = BTreeMap::new();
    let listed = listed.lines().filter_map(|line| line.trim().strip_prefix("- "));
    for path in listed.filter(|path| !path.starts_with("crds/")) {
        files.insert(format!("templates/{path}"), marked(path, read(path.to_owned())?)?);
    }
    Ok(files)
}

/// The manifest with its marks.
fn marked(manifest: &str, text: String) -> Result<String> {
    ensure!(!text.contains("{{"), "deploy/{manifest} has {{{{, which a chart would read as a mark");
    let marked = with_values(manifest, text)?;
    let condition = CONDITIONS.iter().find(|(name, _)| *name == manifest);
    Ok(match condition {
        Some((_, value)) => format!("{{{{- if .Values.{value} }}}}\n{marked}{{{{- end }}}}\n"),
        None => marked,
    })
}

fn with_values(manifest: &str, text: String) -> Result<String> {
    MARKS.iter().filter(|(name, ..)| *name == manifest).try_fold(text, |text, (_, words, mark)| {
        let count = text.matches(words).count();
        ensure!(
            count == 1,
            "deploy/{manifest} has {words:?} {count} times, and the chart needs it once"
        );
        Ok(text.replace(words, mark))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chart_is_written_from_the_manifests_and_fresh() {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).unwrap();
    }

    #[test]
    fn the_default_network_is_the_same_in_the_chart_and_in_the_manifests() {
        let read = |path: &str| {
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy");
            let text = std::fs::read_to_string(root.join(path)).unwrap();
            serde_yaml_ng::from_str::<serde_yaml_ng::Value>(&text).unwrap()
        };
        let manifest = read("default-network.yaml")["data"]["network.yaml"].clone();
        assert!(manifest.is_string());
        assert_eq!(read("chart/values.yaml")["defaultNetworkTemplate"], manifest);
    }

    #[test]
    fn a_manifest_that_a_value_can_leave_out_is_within_its_condition() {
        let text = "ports: [{name: metrics, port: 9641}]\n".to_owned();
        let marked = marked("metrics.yaml", text).unwrap();
        assert!(marked.starts_with("{{- if .Values.metricsAddress }}\nports: "), "{marked}");
        assert!(marked.ends_with("\n{{- end }}\n"), "{marked}");
    }

    #[test]
    fn a_manifest_without_the_words_of_a_mark_is_refused_by_name() {
        let refused = marked("agent.yaml", "image: other".into()).unwrap_err().to_string();
        assert!(refused.starts_with("deploy/agent.yaml has \"image: atoll.dev"), "{refused}");
        let refused = marked("roles.yaml", "{{ odd }}".into()).unwrap_err().to_string();
        assert!(refused.contains("would read as a mark"), "{refused}");
        assert_eq!(marked("roles.yaml", "as it is".into()).unwrap(), "as it is");
    }
}
