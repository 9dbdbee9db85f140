use super::*;

#[test]
fn each_missing_thing_has_limits_and_a_fix() {
    for row in all(Capabilities::get(), 1000, 0) {
        assert_eq!(row.limits.is_empty(), row.fix.is_none(), "{row:?}");
        assert!(row.state != State::Ok || row.limits.is_empty(), "{row:?}");
    }
}

#[test]
fn permissions_are_granted_to_the_file_or_by_the_container() {
    let denied = Refusal {
        call: "bpf",
        errno: 1,
    };
    let absent = Refusal {
        call: "bpf",
        errno: 38,
    };
    let granted = Grant { is_root: false }.or(denied, "x");
    assert!(granted.contains("setcap") && granted.contains("chmod 0750"));
    assert!(granted.ends_with(SETCAP_GRANTS), "{granted}");
    assert!(
        Grant { is_root: true }
            .or(denied, "x")
            .contains("--cap-add")
    );
    assert_eq!(Grant { is_root: true }.or(absent, "x"), "x");
}
