use super::*;

fn count(event: &str, value: f64, unit: &str) -> Count {
    Count {
        event: event.into(),
        value,
        unit: unit.into(),
        time_enabled_ns: 1_000_000,
        time_running_ns: 1_000_000,
        ..Count::default()
    }
}

fn stat() -> Stat {
    Stat {
        whom: "'x'".into(),
        runs: 1,
        elapsed_ns: 2e9,
        counts: vec![
            count("task-clock", 1e9, "ns"),
            count("page-faults", 1_234_567.0, ""),
            count("cycles", 2e9, ""),
            count("instructions", 3e9, ""),
            count("branches", 5e8, ""),
            Count {
                time_running_ns: 532_000,
                ..count("branch-misses", 1e7, "")
            },
            Count {
                state: CountState::NotSupported,
                ..count("cache-misses", 0.0, "")
            },
            Count {
                state: CountState::NotCounted,
                ..count("cache-references", 0.0, "")
            },
            count("power/energy-pkg/", 1.25, "Joules"),
        ],
        ..Stat::default()
    }
}

#[test]
fn a_table_looks_like_perfs() {
    let text = table(&stat(), &Options::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "",
            " Performance counter stats for 'x':",
            "",
            "          1,000.00 msec task-clock                       #    0.500 CPUs utilized",
            "         1,234,567      page-faults                      #    1.235 M/sec",
            "     2,000,000,000      cycles                           #    2.000 GHz",
            "     3,000,000,000      instructions                     #    1.50  insn per cycle",
            "       500,000,000      branches                         #  500.000 M/sec",
            "        10,000,000      branch-misses                    #    2.00% of all branches        (53.2%)",
            "   <not supported>      cache-misses",
            "     <not counted>      cache-references",
            "              1.25 Joules power/energy-pkg/                #    1.250 /sec",
            "",
            "       2.000000000 seconds time elapsed",
            "",
        ]
    );
}

#[test]
fn runs_have_their_spread() {
    let mut stat = stat();
    stat.runs = 3;
    stat.elapsed_ns = 0.051_551_4e9;
    stat.elapsed_spread = Some(0.001_067);
    stat.counts.truncate(1);
    stat.counts[0].spread = Some(0.0187);
    let text = table(&stat, &Options::default());
    assert!(text.contains("for 'x' (3 runs):\n"), "{text}");
    assert!(
        text.contains("CPUs utilized          ( +-  1.87% )\n"),
        "{text}"
    );
    assert!(
        text.contains("         0.0515514 +- 0.0000550 seconds time elapsed  ( +-  0.11% )\n"),
        "{text}"
    );
}

#[test]
fn fields_are_in_perfs_order() {
    let text = stat_fields(&stat(), ",");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..7],
        [
            "1000.00,msec,task-clock,1000000,100.00,0.500,CPUs utilized",
            "1234567,,page-faults,1000000,100.00,1.235,M/sec",
            "2000000000,,cycles,1000000,100.00,2.000,GHz",
            "3000000000,,instructions,1000000,100.00,1.50,insn per cycle",
            "500000000,,branches,1000000,100.00,500.000,M/sec",
            "10000000,,branch-misses,532000,53.20,2.00,of all branches",
            "<not supported>,,cache-misses,1000000,100.00,,",
        ]
    );
    let interval = Counts {
        at_ns: 100_193_130,
        duration_ns: 100_000_000,
        counts: vec![Count {
            cpu: Some(1),
            ..count("cs", 3.0, "")
        }],
    };
    assert_eq!(
        counts_fields(&interval, ";"),
        "     0.100193130;CPU1;3;;cs;1000000;100.00;;\n"
    );
    let lines = IntervalTable::default().lines(&interval, &Options::default());
    let row = "\n     0.100193130 CPU1             3      cs\n";
    assert!(lines.ends_with(row), "{lines}");
}

#[test]
fn lines_of_several_runs_lacked_a_column() {
    let mut stat = stat();
    stat.runs = 3;
    stat.counts[1].spread = Some(0.0044);
    let text = stat_fields(&stat, ",");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        [lines[1], lines[6]],
        [
            "1234567,,page-faults,0.44%,1000000,100.00,1.235,M/sec",
            "<not supported>,,cache-misses,,1000000,100.00,,",
        ]
    );
    let columns = |line: &&str| line.split(',').count();
    assert!(lines.iter().map(columns).all(|count| count == 8), "{text}");
}

#[test]
fn a_field_that_holds_the_separator_is_quoted() {
    let mut stat = stat();
    stat.counts.truncate(2);
    stat.counts[0].event = "cpu/event=1,umask=2/".into();
    stat.counts[0].cgroup = Some("a;\"b\"\n7;cs".into());
    let first = |separator: &str| {
        stat_fields(&stat, separator)
            .lines()
            .next()
            .map(str::to_owned)
    };
    let commas = "1000.00,msec,\"cpu/event=1,umask=2/\",\"a;\"\"b\"\"\\n7;cs\",1000000,100.00,0.500,CPUs utilized";
    assert_eq!(first(",").as_deref(), Some(commas));
    let others = "1000.00;msec;cpu/event=1,umask=2/;\"a;\"\"b\"\"\\n7;cs\";1000000;100.00;0.500;CPUs utilized";
    assert_eq!(first(";").as_deref(), Some(others));
}

#[test]
fn the_cost_lists_its_parts() {
    let mut session = Session::default();
    let mut stat = Stat {
        switches: 1,
        switch_ns: 210.0,
        ..Stat::default()
    };
    session.cost.fraction = 0.0012;
    let line = stat_cost(&session, &stat);
    assert!(line.contains("0.12% of the target's CPU time"), "{line}");
    assert!(
        line.contains("estimated from 1 task switch x 210 ns, cal"),
        "{line}"
    );
    (stat.switches, stat.tracepoint_hits, stat.tracepoint_ns) = (2_000, 1, 99.0);
    let line = stat_cost(&session, &stat);
    assert!(
        line.contains("2,000 task switches x 210 ns and 1 tracepoint hit x 99.0 ns"),
        "{line}"
    );
    let stat = Stat {
        rounds: 2,
        round_ns: 20_100.0,
        lives: 30,
        life_ns: 310.0,
        ..Stat::default()
    };
    let lives = "30 changes x 310 ns of tasks that began, ended or moved, timed";
    let line = stat_cost(&session, &stat);
    assert!(line.contains(&format!("estimated from {lives}")), "{line}");
    let free = Stat {
        rounds: 2,
        ..Stat::default()
    };
    assert_eq!(
        stat_cost(&Session::default(), &free),
        "cost of tracing: 0.00% of the target's CPU time: the kernel counts these events anyway"
    );
    session.cpus = Some(2);
    let line = stat_cost(&session, &stat);
    let parts = format!("2 readings x 20100 ns of all tasks and {lives}");
    assert!(line.contains(&parts), "{line}");
}

#[test]
fn counts_so_far_are_those_of_counted_events_of_the_whole_target() {
    let mut counts = stat().counts;
    counts.truncate(2);
    counts.push(Count {
        cgroup: Some("web".into()),
        ..count("cs", 3.0, "")
    });
    counts.push(Count {
        state: CountState::NotCounted,
        ..count("cycles", 0.0, "")
    });
    assert_eq!(
        counts_so_far(&counts),
        ["1,000.00 msec task-clock", "1,234,567 page-faults"]
    );
}
