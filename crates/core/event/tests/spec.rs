//! The event grammar.

use proptest::prelude::*;
use tiptoe_event::{
    Access, Event, EventError, Function, Kind, MemoryFault, OtherKind, ProbeSpec, Spec, SpecFault,
    UserLocks, WaitSelection, is_glob,
};

fn parse(text: &str) -> Spec<'_> {
    Spec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn uprobe<'a>(binary: Option<&'a str>, function: Function<'a>) -> Spec<'a> {
    Spec::uprobe(binary, function)
}

#[test]
fn the_plain_forms() {
    use Function::{Glob, Name, Offset};
    let redis = Some("redis-server");
    for (text, expected) in [
        ("dictFind", uprobe(None, Name("dictFind"))),
        ("uprobe:dictFind", uprobe(None, Name("dictFind"))),
        ("redis-server:dictFind", uprobe(redis, Name("dictFind"))),
        ("uprobe:redis-server:dict*", uprobe(redis, Glob("dict*"))),
        (
            "/usr/bin/redis-server:0x1f00",
            uprobe(Some("/usr/bin/redis-server"), Offset(0x1f00)),
        ),
        (
            "libssl*:SSL_?[rw]",
            uprobe(Some("libssl*"), Glob("SSL_?[rw]")),
        ),
        ("libc.so.6:*", uprobe(Some("libc.so.6"), Glob("*"))),
        ("*", uprobe(None, Glob("*"))),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn a_double_colon_never_splits() {
    use Function::{Glob, Name};
    for (text, expected) in [
        ("ns::f", uprobe(None, Name("ns::f"))),
        ("uprobe::f", uprobe(None, Name("uprobe::f"))),
        (
            "libstdc++.so.6:std::foo*",
            uprobe(Some("libstdc++.so.6"), Glob("std::foo*")),
        ),
        ("prog:::f", uprobe(Some("prog"), Name("::f"))),
        ("uprobe:mem:f", uprobe(Some("mem"), Name("f"))),
        (
            "a::b<c::d>::operator()(int, long)",
            uprobe(None, Name("a::b<c::d>::operator()(int, long)")),
        ),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn a_colon_between_brackets_never_splits() {
    use Function::{Glob, Name};
    for (text, expected) in [
        ("f[abi:cxx11]", uprobe(None, Name("f[abi:cxx11]"))),
        (
            "prog:ns::f[abi:cxx11]",
            uprobe(Some("prog"), Name("ns::f[abi:cxx11]")),
        ),
        (
            "f::{lambda(auto:1)#1}::operator()<int>(int)",
            uprobe(None, Name("f::{lambda(auto:1)#1}::operator()<int>(int)")),
        ),
        ("-[View draw:in:]", uprobe(None, Name("-[View draw:in:]"))),
        ("main.Map[int]", uprobe(None, Name("main.Map[int]"))),
        ("a[0].so:f*", uprobe(Some("a[0].so"), Glob("f*"))),
        ("a[.so:f", uprobe(Some("a[.so"), Name("f"))),
        ("a].so:f", uprobe(Some("a].so"), Name("f"))),
    ] {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn each_single_colon_may_be_the_one_after_the_binary() {
    use Function::{Glob, Name};
    for (text, expected) in [
        ("f", &[uprobe(None, Name("f"))][..]),
        ("ns::f", &[uprobe(None, Name("ns::f"))]),
        (
            "type:.eq.main.T",
            &[
                uprobe(Some("type"), Name(".eq.main.T")),
                uprobe(None, Name("type:.eq.main.T")),
            ],
        ),
        (
            "uprobe:a:b.so:ns::f*+4",
            &[
                Spec {
                    offset: 4,
                    ..uprobe(Some("a"), Glob("b.so:ns::f*"))
                },
                Spec {
                    offset: 4,
                    ..uprobe(Some("a:b.so"), Glob("ns::f*"))
                },
                Spec {
                    offset: 4,
                    ..uprobe(None, Glob("a:b.so:ns::f*"))
                },
            ],
        ),
    ] {
        let read: Result<Vec<Spec>, _> = Spec::readings(text).collect();
        assert_eq!(read.as_deref(), Ok(expected), "{text}");
    }
    assert!(Spec::readings("a\n:b").all(|read| read.is_err()));
}

#[test]
fn offsets_and_operators() {
    use Function::{Name, Offset};
    for (text, function, offset) in [
        ("f+0x10", Name("f"), 16),
        ("f+16", Name("f"), 16),
        ("operator+", Name("operator+"), 0),
        ("ns::operator++", Name("ns::operator++"), 0),
        ("operator++0x8", Name("operator+"), 8),
        ("operator+(A const&)+4", Name("operator+(A const&)"), 4),
        ("g<(1+2)>", Name("g<(1+2)>"), 0),
        ("operator[]", Name("operator[]"), 0),
        ("operator/", Name("operator/"), 0),
        ("0x10+0x5", Offset(16), 5),
    ] {
        let spec = parse(text);
        assert_eq!((spec.function, spec.offset), (function, offset), "{text}");
    }
}

#[test]
fn options_are_between_the_last_slashes() {
    for (text, at) in [
        ("/bin/prog:f+1/latency,by=arg0,pinned/", 14),
        ("operator//latency/", 10),
    ] {
        let error = Spec::parse(text).expect_err(text);
        assert_eq!((error.fault, error.at), (SpecFault::NoSuchOption, at));
        assert!(text[at..].starts_with("latency"));
        assert!(Spec::readings(text).all(|read| read.is_err()));
    }
}

#[test]
fn other_kinds_are_no_probes() {
    for (kind, text) in [
        (OtherKind::Usdt, "usdt:provider:name"),
        (OtherKind::Mem, "mem:stats.hits:8:w"),
        (OtherKind::Ulock, "ulock:*"),
        (OtherKind::Klock, "klock:*"),
    ] {
        let error = Spec::parse(text).expect_err(text);
        assert_eq!((error.fault, error.at), (SpecFault::NotAProbe(kind), 0));
    }
    assert_eq!(parse("uprobe:mem:f").binary, Some("mem"));
}

#[test]
fn each_kind_of_event_is_read() {
    let parse = |text| Event::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let probe = |text| Event::Probe(ProbeSpec::parse(text).expect("a probe"));
    for text in ["uprobe:prog:f", "uretprobe:f", "uprobe:a:b:c"] {
        assert_eq!(parse(text), probe(text));
    }
    let Event::Memory(memory) = parse("mem:prog:ns::x:4:rw/pinned/") else {
        panic!("not memory");
    };
    assert_eq!(
        (memory.binary, memory.variable.text, memory.variable.at),
        (Some("prog"), "ns::x", 5)
    );
    assert_eq!(
        (memory.length, memory.access, memory.is_pinned),
        (Some(4), Access::ReadWrite, true)
    );
    let locks = |held| Event::UserLocks(UserLocks { held });
    assert_eq!(parse("ulock:*"), locks(None));
    assert_eq!(parse("ulock:prog:lock/hold/"), locks(Some("prog:lock")));
    for selection in [
        WaitSelection::Contended,
        WaitSelection::ContendedMmap,
        WaitSelection::EveryMmap,
    ] {
        assert_eq!(parse(selection.event()), Event::KernelLocks(selection));
    }
    assert_eq!(parse("scope:*"), Event::Scopes);
    for (text, count) in [
        ("cycles", 1),
        ("{cycles,cs}:u", 2),
        ("lock:contention_begin", 1),
    ] {
        let Event::Counters(group) = parse(text) else {
            panic!("{text}: no counters");
        };
        assert_eq!(group.events().count(), count);
    }
    for text in ["usdt:a:b", "ulock:x", "ulock:/hold/", "klock:rq_lock"] {
        assert_eq!(Event::parse(text), Err(EventError::NotYet(text)));
    }
    assert_eq!(Event::parse("cycles,cs"), Err(EventError::SeveralGroups));
    assert!(matches!(
        Event::parse("mem:x:3"),
        Err(EventError::Memory(error)) if error.fault == MemoryFault::BadLength && error.at == 2
    ));
    assert!(matches!(
        Event::parse("cylces"),
        Err(EventError::Counter(_))
    ));
}

#[test]
fn returns_are_written_like_entries() {
    use Function::{Glob, Name, Offset};
    for (text, binary, function) in [
        ("uretprobe:f", None, Name("f")),
        ("uretprobe:prog:ns::f*", Some("prog"), Glob("ns::f*")),
        ("uretprobe:/bin/prog:0x10", Some("/bin/prog"), Offset(16)),
    ] {
        let expected = Spec {
            kind: Kind::Uretprobe,
            ..uprobe(binary, function)
        };
        assert_eq!(parse(text), expected, "{text}");
        assert_eq!(expected.to_string(), text);
    }
}

#[test]
fn faults_say_what_and_where() {
    for (text, fault, at) in [
        ("", SpecFault::NoFunction, 0),
        ("prog:", SpecFault::NoFunction, 5),
        ("mem:", SpecFault::NoFunction, 4),
        (":f", SpecFault::NoBinary, 0),
        ("uprobe:prog:+4", SpecFault::NoFunction, 12),
        ("f+", SpecFault::BadOffset, 2),
        ("f+zz", SpecFault::BadOffset, 2),
        ("f+1+2", SpecFault::BadOffset, 2),
        ("f+0x10000000000000000", SpecFault::BadOffset, 2),
        ("0xzz", SpecFault::BadOffset, 0),
        ("/usr/bin/prog", SpecFault::PathWithoutFunction, 0),
        ("/usr/bin/", SpecFault::PathWithoutFunction, 0),
        ("uretprobe:prog:f+4", SpecFault::OffsetOfReturn, 16),
        ("f//", SpecFault::BadOption, 2),
        ("f/a,,b/", SpecFault::BadOption, 2),
        ("f/by=arg0/", SpecFault::NoSuchOption, 2),
        ("f/by=arg0/+8", SpecFault::BadOption, 0),
        ("~+0/by=arg0/", SpecFault::PathWithoutFunction, 0),
        ("f\n", SpecFault::ControlCharacter, 1),
    ] {
        let error = Spec::parse(text).expect_err(text);
        assert_eq!((error.fault, error.at), (fault, at), "{text:?}");
    }
}

#[test]
fn the_resolved_form() {
    assert_eq!(
        parse("redis-server:dictFind").to_string(),
        "uprobe:redis-server:dictFind"
    );
    assert_eq!(parse("f+16").to_string(), "uprobe:f+0x10");
    assert!(is_glob("a?") && !is_glob("[ab]") && !is_glob("operator[]"));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "generating the text takes minutes")]
    fn displayed_text_reads_back(text in "((uprobe|uretprobe|mem|usdt):)?([a-z:+/0*,=\\[\\](){}]|::|0x|operator|é){0,12}") {
        if let Ok(spec) = Spec::parse(&text) {
            let shown = spec.to_string();
            prop_assert_eq!(Spec::parse(&shown), Ok(spec), "{} became {}", text, shown);
            prop_assert_eq!(Spec::readings(&text).next(), Some(Ok(spec)));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "generating the text takes minutes")]
    fn any_text_is_read_or_refused(text in "\\PC{0,40}") {
        if let Err(error) = Spec::parse(&text) {
            prop_assert!(error.at <= text.len());
        }
    }
}
