//! VPCs: which ranges they have, how subnets lie in them, and who gets which address and number.
//!
//! The rule of this crate: it thinks about networks alone. It knows nothing of tenants, namespaces
//! or pods, has no clock and no I/O, and names subnets and holders by whatever its user names them.
//!
//! A pool is a well-informed guess. What was handed out for good is written down elsewhere, under
//! a name that can exist only once; a pool is filled from what was written, proposes what is
//! probably free, and is corrected when somebody else was first. It never proposes the same number
//! twice while the first proposal stands, and a freed number is proposed last.

mod addresses;
mod blocks;
mod circle;
mod family;
mod groups;
mod holder;
mod ids;
mod layout;
mod numbers;
mod overlap;
mod pools;
mod proposals;
mod range;
mod shares;
mod spans;

pub use addresses::{AddressPool, Exhausted, Refusal};
pub use circle::Moment;
pub use family::Family;
pub use groups::{Each, Groups};
pub use holder::Holder;
pub use layout::{Layout, LayoutError};
pub use numbers::{Number, Numbers};
pub use overlap::{Overlap, first_overlap};
pub use pools::Pools;
pub use range::{Range, RangeError};
pub use shares::{NextBlock, Shares};
