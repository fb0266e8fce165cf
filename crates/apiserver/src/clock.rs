//! Time as Kubernetes writes it: RFC 3339 in UTC, whole seconds.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    // Below a billion, so it fits; a clock beyond the year 9999 reads as the epoch.
    Timestamp::new(seconds, since.subsec_nanos().cast_signed()).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// `2026-01-02T03:04:05Z`.
pub(crate) fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub(crate) fn at_second(seconds: i64) -> Option<Timestamp> {
    Timestamp::new(seconds, 0).ok()
}

pub(crate) fn after(at: Timestamp, seconds: i64) -> Timestamp {
    at.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(at)
}

/// Reads RFC 3339; `None` when it is none.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// An age as kubectl prints it: `5s`, `3m20s`, `47m`, `5h12m`, `3d4h`, `120d`, `2y30d`.
pub(crate) fn age(since: Timestamp, now: Timestamp) -> String {
    human(now.duration_since(since).as_secs())
}

fn human(total: i64) -> String {
    if total < -1 {
        return "<invalid>".to_owned();
    }
    let total = total.max(0);
    let (minutes, hours, days) = (total / 60, total / 3600, total / 86_400);
    match total {
        _ if total < 120 => format!("{total}s"),
        _ if minutes < 10 => two(minutes, "m", total % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 192 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

fn two(big: i64, big_unit: &str, small: i64, small_unit: &str) -> String {
    if small == 0 {
        format!("{big}{big_unit}")
    } else {
        format!("{big}{big_unit}{small}{small_unit}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        let ages = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (3 * 3600 + 60, "3h1m"),
            (9 * 3600, "9h"),
            (49 * 3600, "2d1h"),
            (30 * 86_400, "30d"),
            (800 * 86_400, "2y70d"),
            (-5, "<invalid>"),
        ];
        for (seconds, text) in ages {
            assert_eq!(human(seconds), text, "{seconds} s");
        }
    }

    #[test]
    fn written_times_are_read_back() {
        let at = parse("2026-01-02T03:04:05Z").unwrap();
        assert_eq!(seconds(at), "2026-01-02T03:04:05Z");
        assert_eq!(seconds(after(at, 60)), "2026-01-02T03:05:05Z");
    }
}
