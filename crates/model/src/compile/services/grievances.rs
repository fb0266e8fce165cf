//! What people are to be told of their services, each thing once for as long as it is so.

use std::collections::{BTreeMap, BTreeSet};

use super::book::ServiceName;
use super::fronts::ServiceComplaint;

/// What is wrong with services, and what of it was not told yet.
#[derive(Debug, Default)]
pub(super) struct Grievances {
    current: BTreeMap<ServiceName, BTreeSet<ServiceComplaint>>,
    untold: BTreeSet<(ServiceName, ServiceComplaint)>,
}

impl Grievances {
    /// From now on `complaint` is so of `who`, or is not.
    pub(super) fn set(&mut self, who: &ServiceName, complaint: &ServiceComplaint, is_so: bool) {
        let of_who = self.current.entry(who.clone()).or_default();
        let entry = (who.clone(), complaint.clone());
        if is_so && of_who.insert(complaint.clone()) {
            self.untold.insert(entry);
        } else if !is_so && of_who.remove(complaint) {
            self.untold.remove(&entry);
        }
        if of_who.is_empty() {
            self.current.remove(who);
        }
    }

    /// Exactly these are so of `who`, beside contests and a lack of room, which are told one by one.
    pub(super) fn replace(&mut self, who: &ServiceName, now: &BTreeSet<ServiceComplaint>) {
        let former = self.current.get(who).cloned().unwrap_or_default();
        let is_apart = |it: &&ServiceComplaint| {
            matches!(it, ServiceComplaint::Contested(_) | ServiceComplaint::NoRoom)
        };
        for gone in former.difference(now).filter(|it| !is_apart(it)) {
            self.set(who, gone, false);
        }
        for complaint in now {
            self.set(who, complaint, true);
        }
    }

    /// What was not told yet, of services that `is_due` says.
    pub(super) fn take_untold(
        &mut self,
        is_due: impl Fn(&ServiceName) -> bool,
    ) -> Vec<(ServiceName, ServiceComplaint)> {
        self.untold.extract_if(.., |(who, _)| is_due(who)).collect()
    }
}
