//! An OCI image archive, as the image specification describes it: blobs named by their digest, and
//! an index that leads to them. The same content gives the same bytes.

use std::io::Write;

use anyhow::Result;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

/// An image of one layer.
pub(crate) struct Image {
    /// Its name with its tag.
    pub(crate) name: String,
    /// What a container runs.
    pub(crate) entrypoint: Vec<String>,
    /// The files it has.
    pub(crate) files: Vec<File>,
}

/// One file of an image.
pub(crate) struct File {
    pub(crate) path: String,
    content: Content,
}

enum Content {
    Program(Vec<u8>),
    Link(String),
}

impl File {
    /// A program that everybody may run.
    pub(crate) fn program(path: &str, bytes: Vec<u8>) -> Self {
        File { path: path.into(), content: Content::Program(bytes) }
    }

    /// A symbolic link.
    pub(crate) fn link(path: &str, to: &str) -> Self {
        File { path: path.into(), content: Content::Link(to.into()) }
    }
}

/// An archive that is being written.
pub(crate) struct Archive<W: Write> {
    tar: Builder<W>,
}

impl<W: Write> Archive<W> {
    pub(crate) fn new(output: W) -> Self {
        Archive { tar: Builder::new(output) }
    }

    /// Writes the whole archive of one image.
    pub(crate) fn write(mut self, image: &Image) -> Result<()> {
        let layer = layer(&image.files)?;
        let diff_id = digest(&layer);
        let layer = self.blob("application/vnd.oci.image.layer.v1.tar", &layer)?;
        let config = serde_json::to_vec(&config(image, &diff_id))?;
        let config = self.blob("application/vnd.oci.image.config.v1+json", &config)?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config,
            "layers": [layer],
        });
        let mut manifest = self
            .blob("application/vnd.oci.image.manifest.v1+json", &serde_json::to_vec(&manifest)?)?;
        manifest["annotations"] = names(image);
        let index = json!({ "schemaVersion": 2, "manifests": [manifest] });
        self.file("index.json", &serde_json::to_vec(&index)?)?;
        self.file("oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        self.tar.into_inner()?.flush()?;
        Ok(())
    }

    /// Writes a blob and returns what points to it.
    fn blob(&mut self, media_type: &str, bytes: &[u8]) -> Result<Value> {
        let digest = digest(bytes);
        self.file(&format!("blobs/{}", digest.replace(':', "/")), bytes)?;
        Ok(json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() }))
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        append(&mut self.tar, path, 0o644, bytes)
    }
}

/// The name where containerd looks for it, and the tag where the specification says.
fn names(image: &Image) -> Value {
    let tag = image.name.rsplit_once(':').map_or("latest", |(_, tag)| tag);
    json!({ "io.containerd.image.name": image.name, "org.opencontainers.image.ref.name": tag })
}

fn config(image: &Image, diff_id: &str) -> Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Entrypoint": image.entrypoint,
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
        },
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    })
}

fn layer(files: &[File]) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for file in files {
        match &file.content {
            Content::Program(bytes) => append(&mut tar, &file.path, 0o755, bytes)?,
            Content::Link(to) => {
                let mut header = header(EntryType::Symlink, 0o777, 0);
                tar.append_link(&mut header, &file.path, to)?;
            }
        }
    }
    Ok(tar.into_inner()?)
}

fn append(tar: &mut Builder<impl Write>, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, mode, bytes.len() as u64);
    Ok(tar.append_data(&mut header, path, bytes)?)
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

fn digest(bytes: &[u8]) -> String {
    let hash = ring::digest::digest(&ring::digest::SHA256, bytes);
    let hex: String = hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read;

    use super::*;

    fn image() -> Image {
        Image {
            name: "atoll.dev/tool:7".into(),
            entrypoint: vec!["/tool".into()],
            files: vec![File::program("tool", b"bytes".to_vec()), File::link("alias", "tool")],
        }
    }

    fn written() -> Vec<u8> {
        let mut bytes = Vec::new();
        Archive::new(&mut bytes).write(&image()).unwrap();
        bytes
    }

    fn unpacked(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(bytes);
        let file = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            (entry.path().unwrap().to_string_lossy().into_owned(), bytes)
        };
        archive.entries().unwrap().map(file).collect()
    }

    /// Follows a descriptor to its blob, and holds it to what the descriptor says.
    fn follow<'a>(files: &'a BTreeMap<String, Vec<u8>>, descriptor: &Value) -> &'a [u8] {
        let digest_told = descriptor["digest"].as_str().unwrap();
        let blob = &files[&format!("blobs/{}", digest_told.replace(':', "/"))];
        assert_eq!(digest(blob), digest_told);
        assert_eq!(blob.len(), descriptor["size"].as_u64().unwrap() as usize);
        blob
    }

    #[test]
    fn the_index_leads_to_the_layer_with_the_files() {
        let files = unpacked(&written());
        let index: Value = serde_json::from_slice(&files["index.json"]).unwrap();
        let entry = &index["manifests"][0];
        assert_eq!(entry["annotations"]["io.containerd.image.name"], "atoll.dev/tool:7");
        let manifest: Value = serde_json::from_slice(follow(&files, entry)).unwrap();
        let layer = follow(&files, &manifest["layers"][0]);
        let config: Value = serde_json::from_slice(follow(&files, &manifest["config"])).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(layer));
        assert_eq!(config["config"]["Entrypoint"], json!(["/tool"]));
        assert_eq!(unpacked(layer)["tool"], b"bytes");
    }

    #[test]
    fn the_same_content_gives_the_same_bytes() {
        assert_eq!(written(), written());
    }
}
