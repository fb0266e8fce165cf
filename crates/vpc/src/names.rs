//! What the user of this crate calls things.

use std::fmt::Debug;
use std::hash::Hash;

use atoll_types::Cidr;

/// What things are called. Nothing is read into a name but that it is the same as another, and
/// comes before or after it.
pub trait Names: Clone + Debug {
    /// A VPC.
    type Vpc: Name;
    /// A network.
    type Network: Name;
    /// A subnet.
    type Subnet: Name;
    /// A port, which holds addresses.
    type Port: Name;
    /// Tells a network or a port from the next one of its name.
    type Incarnation: Name;
    /// When something was made.
    type Age: Clone + Debug + Ord;

    /// The subnet that a network has for one of its ranges.
    fn own_subnet(network: &Self::Network, range: Cidr) -> Self::Subnet;
}

/// What can be a name.
pub trait Name: Clone + Debug + Ord + Hash {}

impl<T: Clone + Debug + Ord + Hash> Name for T {}
