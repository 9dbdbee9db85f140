//! Filters as text, and the values that they pass.

use proptest::prelude::*;
use tiptoe_event::{Comparison, Filter, FilterFault, Join, Operator, Via, Width};

fn parse(text: &str) -> Filter {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn the_forms() {
    let filter = parse("arg1 > 4096 && arg0:u32==0x3");
    assert_eq!(filter.join(), Join::All);
    assert_eq!(
        filter.comparisons(),
        [
            Comparison {
                arg: 1,
                width: Width::S64,
                operator: Operator::Gt,
                value: 4096
            },
            Comparison {
                arg: 0,
                width: Width::U32,
                operator: Operator::Eq,
                value: 3
            },
        ]
    );
    assert_eq!(parse("arg0 == 1 || arg0 == 2").join(), Join::Any);
    assert_eq!(parse("arg5:s8 <= -128").comparisons()[0].value, -128);
    assert_eq!(
        parse("arg2:u64 >= 0xffffffffffffffff").comparisons()[0].value,
        -1
    );
    assert_eq!(filter.to_string(), "arg1 > 4096 && arg0:u32 == 3");
}

#[test]
fn matching_values_pass() {
    let pass = |text: &str, arg0: u64, arg1: u64| parse(text).passes(&[arg0, arg1, 0, 0, 0, 0]);
    assert!(pass("arg1 > 4096", 0, 4097) && !pass("arg1 > 4096", 0, 4096));
    assert!(pass("arg0 < 0", u64::MAX, 0) && !pass("arg0:u64 < 1", u64::MAX, 0));
    assert!(pass("arg0:u8 == 3", 0xff03, 0) && pass("arg0:s16 == -1", 0x1_ffff, 0));
    assert!(pass("arg0 == 1 || arg1 == 1", 0, 1) && !pass("arg0 == 1 && arg1 == 1", 0, 1));
}

#[test]
fn faults_say_what_and_where() {
    for (text, fault, at) in [
        ("", FilterFault::NoArgument, 0),
        ("size > 3", FilterFault::NoArgument, 0),
        ("arg6 > 3", FilterFault::NoSuchArgument, 0),
        ("arg > 3", FilterFault::NoSuchArgument, 0),
        ("arg0:u7 > 3", FilterFault::BadWidth, 5),
        ("arg0 = 3", FilterFault::NoOperator, 5),
        ("arg0 > ", FilterFault::NoNumber, 7),
        ("arg0 > x", FilterFault::NoNumber, 7),
        ("arg0:u8 > 256", FilterFault::OutOfRange, 10),
        ("arg0:u8 > -1", FilterFault::OutOfRange, 11),
        ("arg0 > 0xffffffffffffffff", FilterFault::OutOfRange, 7),
        ("arg0>1 && arg0>2 || arg0>3", FilterFault::MixedJoin, 17),
        ("arg0>1 arg0>2", FilterFault::Trailing, 7),
        ("arg0>1 && ", FilterFault::NoArgument, 10),
    ] {
        let error = text.parse::<Filter>().expect_err(text);
        assert_eq!((error.fault, error.at), (fault, at), "{text:?}");
    }
    let nine = ["arg0 > 1"; 9].join(" && ");
    assert_eq!(
        nine.parse::<Filter>().map_err(|e| e.fault),
        Err(FilterFault::TooMany)
    );
}

#[test]
fn via_reads_back() {
    for via in Via::ALL {
        assert_eq!(via.to_string().parse(), Ok(via));
    }
    assert!("ebpf".parse::<Via>().is_err());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "generating the text takes minutes")]
    fn displayed_text_reads_back(
        text in "arg[0-6](:(u8|s16|u64))? ?(==|!=|<=|<|>) ?-?(0x)?[0-9]{1,4}( && arg1 > 2){0,9}"
    ) {
        if let Ok(filter) = text.parse::<Filter>() {
            prop_assert_eq!(filter.to_string().parse(), Ok(filter));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "generating the text takes minutes")]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        if let Err(error) = text.parse::<Filter>() {
            prop_assert!(error.at <= text.len());
        }
    }
}
