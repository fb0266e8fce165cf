//! Who holds something.

/// One incarnation of something that has a name: whatever has that name later is another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder<N, I> {
    /// What it is called.
    pub name: N,
    /// What tells it from others of that name.
    pub incarnation: I,
}
