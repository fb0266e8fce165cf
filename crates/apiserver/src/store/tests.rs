use super::*;
use serde_json::json;

fn config_map(name: &str) -> (Key, Value) {
    let value = json!({"metadata": {"name": name, "namespace": "default", "uid": name}});
    (Key::new("configmaps", "default", name), value)
}

fn put(store: &Store, name: &str) -> Result<Arc<Stored>, Failure> {
    let (key, value) = config_map(name);
    store.transact_blocking(move |tx| Ok(tx.put(&key, value)))
}

fn temp() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store.redb");
    (dir, path)
}

#[test]
fn objects_and_the_resource_version_survive_a_restart() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "a").unwrap();
    let last = put(&store, "b").unwrap();
    drop(store);
    let store = Store::open(&path).unwrap();
    assert_eq!(store.read().revision(), last.revision);
    let names: Vec<_> =
        store.read().list("configmaps", "default").map(|s| s.key.name.clone()).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_failed_transaction_leaves_nothing_and_uses_no_version() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    let before = store.read().revision();
    let (key, value) = config_map("a");
    let outcome = store.transact_blocking(move |tx| -> Result<(), Failure> {
        tx.put(&key, value);
        Err(Failure::bad_request("no"))
    });
    assert_eq!(outcome.unwrap_err().code, 400);
    assert_eq!(store.read().revision(), before);
    assert_eq!(store.read().count("configmaps"), 0);
}

#[test]
fn a_transaction_that_panics_takes_nothing_else_along() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    let (key, value) = config_map("a");
    let outcome = store.transact_blocking(move |tx| -> Result<(), Failure> {
        tx.put(&key, value);
        panic!("on purpose")
    });
    assert_eq!(outcome.unwrap_err().code, 503);
    assert_eq!(store.read().count("configmaps"), 0);
    put(&store, "b").unwrap();
}

#[test]
fn a_dry_run_sees_its_own_writes_and_keeps_none() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    let (key, value) = config_map("a");
    let seen = store
        .transact_blocking(move |tx| {
            tx.put(&key, value);
            let seen = tx.get(&key).is_some();
            tx.discard();
            Ok(seen)
        })
        .unwrap();
    assert!(seen);
    assert_eq!(store.read().count("configmaps"), 0);
}

#[test]
fn the_feed_gives_what_is_newer_and_refuses_what_it_no_longer_knows() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    let first = put(&store, "a").unwrap().revision;
    let second = put(&store, "b").unwrap().revision;
    let feed = store.feed(&"configmaps".into());
    let seen: Vec<_> = feed.since(first).unwrap().iter().map(|c| c.revision()).collect();
    assert_eq!(seen, [second]);
    drop((feed, store));
    let store = Store::open(&path).unwrap();
    let feed = store.feed(&"configmaps".into());
    assert_eq!(feed.since(first).unwrap_err().code, 410);
    assert!(feed.since(second).unwrap().is_empty());
}

#[test]
fn a_list_can_go_back_to_an_earlier_version() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "a").unwrap();
    let then = put(&store, "b").unwrap().revision;
    put(&store, "c").unwrap();
    let (key, _) = config_map("a");
    store.transact_blocking(move |tx| Ok(tx.remove(&key).is_some())).unwrap();
    let names = |after: Option<&str>| -> Vec<String> {
        let after = after.map(|name| ("default".to_owned(), name.to_owned()));
        let found = store.read().list_at("configmaps", "", after.as_ref(), then).unwrap();
        found.iter().map(|stored| stored.key.name.clone()).collect()
    };
    assert_eq!(names(None), ["a", "b"]);
    assert_eq!(names(Some("a")), ["b"]);
    assert!(names(Some("b")).is_empty());
}

#[test]
fn owners_find_their_dependents() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "owner").unwrap();
    let (key, mut value) = config_map("child");
    object_with_owner(&mut value, "owner");
    store.transact_blocking(move |tx| Ok(tx.put(&key, value))).unwrap();
    let dependents: Vec<_> = store.read().dependents("owner").map(|key| key.name.clone()).collect();
    assert_eq!(dependents, ["child"]);
    assert_eq!(store.read().by_uid("owner").unwrap().name, "owner");
}

fn object_with_owner(value: &mut Value, uid: &str) {
    crate::object::set_meta(value, "ownerReferences", json!([{"uid": uid}]));
}

#[test]
fn the_observer_is_told_before_the_writer_is_answered() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    store.observe(Box::new(move |changes| {
        counter.fetch_add(changes.len(), std::sync::atomic::Ordering::SeqCst);
    }));
    put(&store, "a").unwrap();
    assert_eq!(seen.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[test]
fn a_store_of_a_newer_format_is_refused_with_advice() {
    let (_dir, path) = temp();
    drop(Store::open(&path).unwrap());
    disk::pretend_format(&path, 99);
    let Err(error) = Store::open(&path) else { panic!("opened a store of the future") };
    assert!(error.to_string().contains("has format 99"), "{error}");
}

#[test]
fn a_store_that_lost_its_end_is_refused_and_not_served() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    for number in 0..200 {
        put(&store, &format!("object-{number}")).unwrap();
    }
    drop(store);
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    let Err(error) = Store::open(&path) else { panic!("opened half a store") };
    assert!(error.to_string().contains("move the file away"), "{error}");
}

#[test]
fn a_store_in_use_is_refused() {
    let (_dir, path) = temp();
    let _store = Store::open(&path).unwrap();
    let Err(error) = Store::open(&path) else { panic!("opened a store twice") };
    assert!(error.to_string().contains("another lab"), "{error}");
}

#[test]
fn a_file_that_is_no_store_is_refused_with_advice() {
    let (_dir, path) = temp();
    std::fs::write(&path, "this is not a store").unwrap();
    let Err(error) = Store::open(&path) else { panic!("opened a text file as a store") };
    assert!(error.to_string().contains("move the file away"), "{error}");
}

/// One letter inside of a text, so that the object would still be read.
#[test]
fn a_store_with_a_damaged_object_is_refused_and_not_served() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "a-name-that-is-found-again").unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    let needle = b"\"name\":\"a-name-that-is-found-again\"";
    let mut damaged = 0;
    for start in 0..bytes.len() - needle.len() {
        if &bytes[start..start + needle.len()] == needle {
            bytes[start + needle.len() - 2] = b'x';
            damaged += 1;
        }
    }
    assert!(damaged > 0, "the object is not in the file");
    std::fs::write(&path, &bytes).unwrap();
    let Err(error) = Store::open(&path) else { panic!("opened a damaged store") };
    assert!(error.to_string().contains("move the file away"), "{error}");
}

#[test]
fn a_store_whose_head_is_damaged_is_refused_with_advice() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "a").unwrap();
    drop(store);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[..512].fill(0xA5);
    std::fs::write(&path, &bytes).unwrap();
    let Err(error) = Store::open(&path) else { panic!("opened a store without a head") };
    assert!(error.to_string().contains("move the file away"), "{error}");
}

#[test]
fn an_object_that_is_not_where_its_key_says_is_refused() {
    let (_dir, path) = temp();
    let store = Store::open(&path).unwrap();
    put(&store, "a").unwrap();
    drop(store);
    disk::pretend_object(&path, "b", r#"{"metadata":{"name":"a","namespace":"default"}}"#);
    let Err(error) = Store::open(&path) else { panic!("opened a store with a stray object") };
    assert!(error.to_string().contains("is damaged at configmaps/default/b"), "{error}");
}
