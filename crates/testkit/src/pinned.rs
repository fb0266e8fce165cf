//! The maps that a node has pinned, as tests read and change them: connections that are made older, and a
//! node that looks as the layout before this one left it.
//!
//! The rule: a node is known by the folder of its pins alone, so that it may be one of a test's own or
//! one of a lab.

use std::fs;
use std::path::{Path, PathBuf};

use atoll_abi::{Connection, ConnectionKey, LAYOUT_VERSION, TURNS_PER_PAGE, Turns, TurnsKey};
use aya::maps::{HashMap, Map, MapData};

/// The layout that this version takes over.
pub const FORMER_LAYOUT: u32 = LAYOUT_VERSION - 1;

const KEY: usize = size_of::<ConnectionKey>();
const ENTRY: usize = size_of::<Connection>();
const TURNS_KEY: usize = size_of::<TurnsKey>();
const TURNS: usize = size_of::<Turns>();

/// As many places as the rings of layout 4 had.
const FORMER_TURNS: u32 = 262_144;
/// Room for an entry is taken when it comes.
const NO_PREALLOC: u32 = 1;

/// What is counted on.
const IS_OURS: &str = "the maps of a node can be read and written as they were made";

/// Where a node has the pins of a layout.
pub fn layout(root: &Path, version: u32) -> PathBuf {
    root.join(format!("v{version}"))
}

/// Everything in a node's map of connections.
///
/// # Panics
/// When there is none.
pub fn connections(root: &Path) -> Vec<(ConnectionKey, Connection)> {
    let plain = |entry| {
        let (key, value): ([u8; KEY], [u8; ENTRY]) = entry;
        (bytemuck::pod_read_unaligned(&key), bytemuck::pod_read_unaligned(&value))
    };
    entries(root).iter().map(|entry| plain(entry.expect(IS_OURS))).collect()
}

/// Makes of every connection of a node what `becomes` says, or nothing.
///
/// # Panics
/// When there is no map of them.
pub fn change_connections(
    root: &Path,
    becomes: impl Fn(&ConnectionKey, Connection) -> Option<Connection>,
) {
    let mut map = entries(root);
    for (key, entry) in connections(root) {
        let raw: [u8; KEY] = bytes(&key);
        match becomes(&key, entry) {
            Some(same) if same == entry => {}
            Some(new) => {
                let new: [u8; ENTRY] = bytes(&new);
                map.insert(raw, new, 0).expect(IS_OURS);
            }
            None => map.remove(&raw).expect(IS_OURS),
        }
    }
}

fn entries(root: &Path) -> HashMap<MapData, [u8; KEY], [u8; ENTRY]> {
    open(&layout(root, LAYOUT_VERSION).join("maps/connections")).try_into().expect(IS_OURS)
}

fn bytes<const SIZE: usize>(value: &impl bytemuck::NoUninit) -> [u8; SIZE] {
    bytemuck::bytes_of(value).try_into().expect(IS_OURS)
}

fn open(pin: &Path) -> Map {
    Map::from_map_data(MapData::from_pin(pin).expect(IS_OURS)).expect(IS_OURS)
}

/// Makes a node without an agent look as layout 4 left it: its maps, and the links of its programs.
///
/// # Panics
/// When its pins are not those of this version.
pub fn turn_back(root: &Path) {
    let (new, old) = (layout(root, LAYOUT_VERSION), layout(root, FORMER_LAYOUT));
    fs::create_dir_all(old.join("maps")).expect(IS_OURS);
    write_former_turns(&new.join("maps/turns"), &old.join("maps/turns"));
    fs::remove_file(new.join("maps/turns")).expect(IS_OURS);
    for map in fs::read_dir(new.join("maps")).expect(IS_OURS).flatten() {
        fs::rename(map.path(), old.join("maps").join(map.file_name())).expect(IS_OURS);
    }
    fs::rename(new.join("links"), old.join("links")).expect(IS_OURS);
    fs::remove_dir(new.join("maps")).expect(IS_OURS);
    fs::remove_dir(new).expect(IS_OURS);
}

/// Writes the rings as layout 4 had them: an entry for each place.
fn write_former_turns(from: &Path, to: &Path) {
    let now: HashMap<_, [u8; TURNS_KEY], [u8; TURNS]> = open(from).try_into().expect(IS_OURS);
    let then = HashMap::<_, [u8; TURNS_KEY], [u8; KEY]>::create(FORMER_TURNS, NO_PREALLOC);
    let mut then = then.expect(IS_OURS);
    for entry in now.iter() {
        let (key, page) = entry.expect(IS_OURS);
        let key: TurnsKey = bytemuck::cast(key);
        let page: Turns = bytemuck::pod_read_unaligned(&page);
        for (place, connection) in (0..).zip(page.at) {
            let connection: [u8; KEY] = bytes(&connection);
            let turn = key.page * TURNS_PER_PAGE as u32 + place;
            if connection != [0; KEY] {
                then.insert(bytemuck::cast::<_, [u8; TURNS_KEY]>([key.table, turn]), connection, 0)
                    .expect(IS_OURS);
            }
        }
    }
    then.pin(to).expect(IS_OURS);
}
