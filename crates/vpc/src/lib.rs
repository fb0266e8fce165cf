//! VPCs: which ranges they have, how subnets lie in them, and who gets which address and number.
//!
//! The rule of this crate: it thinks about networks alone. It knows nothing of tenants, namespaces
//! or pods, has no clock and no I/O, and calls things by whatever [`Names`] its user has for them.
//! The [`Ledger`] is told what there is and what was claimed, and says what may be claimed.
//!
//! A ledger is a well-informed guess. What was handed out for good is written down elsewhere, under
//! a name that can exist only once; a pool is filled from what was written, proposes what is
//! probably free, and is corrected when somebody else was first. It never proposes the same number
//! twice while the first proposal stands, and a freed number is proposed last.

mod addresses;
mod blocks;
mod circle;
mod family;
mod grant;
mod groups;
mod holder;
mod holdings;
mod ids;
mod layout;
mod ledger;
mod names;
mod networks;
mod numbers;
mod overlap;
mod pools;
mod proposals;
mod range;
mod ranges;
mod shares;
mod spans;
mod subnets;

pub use addresses::{AddressPool, Exhausted, Refusal};
pub use circle::Moment;
pub use family::Family;
pub use grant::{Ask, Granted, Refused};
pub use groups::{Each, Groups};
pub use holder::Holder;
pub use holdings::Holdings;
pub use layout::{Layout, LayoutError};
pub use ledger::{BlockHolder, Count, Ledger, PortHolder};
pub use names::{Name, Names};
pub use networks::{Network, Networks, Space};
pub use numbers::{Number, Numbers};
pub use overlap::Overlap;
pub use range::{Range, RangeError};
pub use ranges::{Misplaced, Sorted};
pub use shares::{NextBlock, Shares};
pub use subnets::{Stage, Subnet, Subnets};
