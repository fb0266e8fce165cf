//! The arithmetic of a rolling update: how far the new set may grow and the old ones must shrink,
//! so that there are never more pods than the surge allows nor fewer available than promised.

use super::number;
use serde_json::Value;

/// What a deployment allows while it rolls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) wanted: i64,
    pub(super) surge: i64,
    pub(super) unavailable: i64,
}

/// How many pods a set wants and how many it has available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) wants: i64,
    pub(super) available: i64,
}

impl Size {
    pub(super) fn of(set: &Value) -> Size {
        Size {
            wants: number(set, "spec.replicas"),
            available: number(set, "status.availableReplicas"),
        }
    }
}

impl Bounds {
    pub(super) fn of(deployment: &Value) -> Bounds {
        let wanted = number(deployment, "spec.replicas");
        let strategy = &deployment["spec"]["strategy"];
        if strategy["type"] == "Recreate" {
            return Bounds { wanted, surge: 0, unavailable: wanted };
        }
        let rolling = &strategy["rollingUpdate"];
        let surge = share(&rolling["maxSurge"], wanted, true);
        let unavailable = share(&rolling["maxUnavailable"], wanted, false).min(wanted);
        // Without any leeway nothing could ever move.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Bounds { wanted, surge, unavailable }
    }

    pub(super) fn least_available(&self) -> i64 {
        (self.wanted - self.unavailable).max(0)
    }

    pub(super) fn most(&self) -> i64 {
        if self.wanted == 0 { 0 } else { self.wanted + self.surge }
    }

    /// The next size of the new set, which has `now` beside `others` of older sets.
    pub(super) fn grow(&self, now: i64, others: i64) -> i64 {
        if now >= self.wanted {
            return self.wanted;
        }
        let room = (self.wanted + self.surge - now - others).max(0);
        self.wanted.min(now + room)
    }

    /// The next sizes of the old sets, given oldest first: what is not available goes first.
    pub(super) fn shrink(&self, new: Size, old: &[Size]) -> Vec<i64> {
        let mut sizes: Vec<i64> = old.iter().map(|size| size.wants).collect();
        let all = new.wants + sizes.iter().sum::<i64>();
        let waiting = (new.wants - new.available).max(0);
        let mut spare = all - self.least_available() - waiting;
        for (size, set) in sizes.iter_mut().zip(old) {
            let useless = (set.wants - set.available).min(spare).max(0);
            *size -= useless;
            spare -= useless;
        }
        let available = new.available + old.iter().map(|size| size.available).sum::<i64>();
        let mut surplus = (available - self.least_available()).min(spare).max(0);
        for size in &mut sizes {
            let gone = surplus.min(*size);
            *size -= gone;
            surplus -= gone;
        }
        sizes
    }
}

/// A number, or a share of `whole` in percent.
fn share(value: &Value, whole: i64, up: bool) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    match percent {
        Some(percent) if up => (whole * percent + 99) / 100,
        Some(percent) => whole * percent / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn bounds(wanted: i64, surge: i64, unavailable: i64) -> Bounds {
        Bounds { wanted, surge, unavailable }
    }

    #[test]
    fn a_surge_is_rounded_up_and_what_may_be_missing_down() {
        let deployment = json!({"spec": {"replicas": 3, "strategy": {"rollingUpdate": {
            "maxSurge": "25%", "maxUnavailable": "25%"}}}});
        assert_eq!(Bounds::of(&deployment), bounds(3, 1, 0));
        let stuck = json!({"spec": {"replicas": 3, "strategy": {"rollingUpdate": {
            "maxSurge": 0, "maxUnavailable": "10%"}}}});
        assert_eq!(Bounds::of(&stuck), bounds(3, 0, 1));
    }

    #[test]
    fn a_roll_keeps_its_bounds_and_reaches_its_end() {
        for (wanted, surge, unavailable) in [(3, 1, 0), (3, 0, 1), (10, 3, 2), (1, 1, 0), (4, 4, 4)]
        {
            let bounds = bounds(wanted, surge, unavailable);
            let mut new = Size { wants: 0, available: 0 };
            let mut old = [Size { wants: wanted, available: wanted }];
            for _ in 0..50 {
                new.wants = bounds.grow(new.wants, old[0].wants);
                assert!(new.wants + old[0].wants <= bounds.most(), "{bounds:?}");
                old[0].wants = bounds.shrink(new, &old)[0];
                old[0].available = old[0].available.min(old[0].wants);
                let available = new.available + old[0].available;
                assert!(available >= bounds.least_available(), "{bounds:?}");
                new.available = new.wants;
            }
            assert_eq!((new.wants, old[0].wants), (wanted, 0), "{bounds:?}");
        }
    }

    #[test]
    fn old_pods_that_are_not_available_go_before_those_that_are() {
        let new = Size { wants: 1, available: 1 };
        let old = [Size { wants: 2, available: 2 }, Size { wants: 1, available: 0 }];
        assert_eq!(bounds(3, 1, 0).shrink(new, &old), [2, 0]);
    }
}
