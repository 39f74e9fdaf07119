//! Unit tests of sessions.

use kauri_commands::sessions::Sessions;
use std::time::Duration;

#[test]
fn sessions_end_on_request_or_by_timeout() {
    let sessions = Sessions::default();
    for id in 0..40u8 {
        sessions.touch([id; 16], Duration::from_secs(u64::from(id))).unwrap();
    }
    sessions.touch([3; 16], Duration::from_secs(100)).unwrap();
    assert_eq!(sessions.count(), 40);
    assert!(sessions.end(&[5; 16]));
    assert!(!sessions.end(&[5; 16]));
    let mut expired = sessions.expire(Duration::from_secs(10));
    expired.sort();
    assert_eq!(expired.len(), 8);
    assert!(!expired.contains(&[3; 16]) && !expired.contains(&[5; 16]));
    assert_eq!(sessions.count(), 31);
}
