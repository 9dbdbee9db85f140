use super::*;

fn check(width: usize, name: &str, remarks: &str, expected: &str) {
    let mut grid = Grid::new(&["count", "cost"], "event".to_owned());
    grid.add(
        vec!["12".into(), String::new()],
        name.into(),
        remarks.into(),
    );
    let options = Options {
        width: Some(width),
        ..Options::default()
    };
    assert_eq!(grid.lines(&options)[1..].join("\n"), expected);
}

#[test]
fn remarks_go_below_before_names_are_cut_in_the_middle() {
    check(
        40,
        "shop::Basket::add(int)",
        "",
        "   12  shop::Basket::add(int)",
    );
    let also = "  (also shop::add)";
    check(
        47,
        "shop::Basket::add(int)",
        also,
        "   12  shop::Basket::add(int)  (also shop::add)",
    );
    check(
        40,
        "shop::Basket::add(int)",
        also,
        "   12  shop::Basket::add(int)\n         (also shop::add)",
    );
    check(
        24,
        "shop::Basket::add(int)",
        also,
        "   12  shop::Ba…add(int)\n         (also\n         shop::add)",
    );
}

fn two_locks(width: usize) -> Vec<String> {
    let mut grid = Grid::new(&["total", "p50", "p99"], "lock".to_owned())
        .with_words(&["type"])
        .with_tail("mostly from")
        .with_spare(&["p50"]);
    for (name, kind) in [("cache_lock", "mutex"), ("lru_locks[3]", "rwlock")] {
        grid.add_row(Cells {
            cells: ["1.00s", "1us", "20us", kind].map(str::to_owned).to_vec(),
            name: name.into(),
            tail: "item_get+0x12".into(),
            ..Cells::default()
        });
    }
    let options = Options {
        width: Some(width),
        ..Options::default()
    };
    grid.lines(&options)
}

#[test]
fn a_tail_goes_below_and_spare_columns_go_before_a_name_is_cut() {
    let wide = [
        "total  p50   p99  type    lock          mostly from",
        "1.00s  1us  20us  mutex   cache_lock    item_get+0x12",
        "1.00s  1us  20us  rwlock  lru_locks[3]  item_get+0x12",
    ];
    assert_eq!(two_locks(60), wide);
    let narrow = [
        "total  p50   p99  type    lock",
        "1.00s  1us  20us  mutex   cache_lock",
        "         mostly from item_get+0x12",
        "1.00s  1us  20us  rwlock  lru_locks[3]",
        "         mostly from item_get+0x12",
    ];
    assert_eq!(two_locks(40), narrow);
    let narrower = [
        "total   p99  type    lock",
        "1.00s  20us  mutex   cache_lock",
        "         mostly from item_g…+0x12",
        "1.00s  20us  rwlock  lru_locks[3]",
        "         mostly from item_g…+0x12",
        "(p50: on a wider terminal, or",
        " --json)",
    ];
    assert_eq!(two_locks(33), narrower);
}

#[test]
fn the_common_prefix_is_kind_and_binary() {
    let common = |names: &[&'static str]| common_prefix(names.iter().copied());
    assert_eq!(common(&["uprobe:a:f", "uprobe:a:ns::g"]), "uprobe:a:");
    assert_eq!(common(&["uprobe:a:ns::f"]), "uprobe:a:");
    assert_eq!(common(&["uprobe:a:f", "uprobe:b:f"]), "uprobe:");
    assert_eq!(common(&["uprobe:a:f", "uretprobe:a:f"]), "");
    assert_eq!(common(&["uprobe:prog:type:.eq.main.T"]), "uprobe:prog:");
    assert_eq!(common(&[]), "");
}

#[test]
fn a_library_with_a_colon_in_its_name_was_cut_there() {
    let common = |names: &[&'static str]| common_prefix(names.iter().copied());
    let one = ["uprobe:a:b.so.1:f", "uprobe:a:b.so.1:ns::g"];
    assert_eq!(common(&one), "uprobe:a:b.so.1:");
    assert_eq!(common(&["uprobe:a:b.so:f", "uprobe:a:c.so:f"]), "uprobe:");
    assert_eq!(binary_prefix("a:b.so:lock"), Some("a:b.so:"));
    assert_eq!(binary_prefix("0x1000"), None);
}

#[test]
fn a_colon_inside_brackets_was_taken_for_a_binarys_end() {
    assert_eq!(binary_prefix("f[abi:cxx11]"), None);
    assert_eq!(binary_prefix("uprobe:a:f[abi:x]"), Some("uprobe:a:"));
    assert_eq!(binary_prefix("uprobe:a:::f"), Some("uprobe:a:"));
    // `uprobe` is a namespace here, not a kind.
    assert_eq!(common_prefix(["uprobe::f"].into_iter()), "");
}

#[test]
fn plain_tables_align_words_left_and_numbers_right() {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
    let rows = [
        row(["a", "", "5%"]),
        row(["\u{1b}[31mbcdefg\u{1b}[0m", "", "-"]),
    ];
    let lines = table_lines(&["what", "none", "n"], &rows);
    assert_eq!(
        lines,
        ["what     n", "a       5%", "\u{1b}[31mbcdefg\u{1b}[0m   -"]
    );
}
