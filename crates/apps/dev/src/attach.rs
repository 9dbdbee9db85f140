//! `tiptoe-dev bench attach`: the time until every function is probed, and for how long attaching stops a running
//! thread.

use std::time::{Duration, Instant};

use tiptoe_event::Via;

use crate::assembly::{ATTACH, Site};
use crate::driver::{Calls, TraceRequest, Tracing};
use crate::error::Error;
use crate::options::Options;
use crate::table::{Table, TableRow};
use crate::target::Target;

/// How long the busy thread looks for times in which it did not run: longer than an attach.
const WATCH_MS: u32 = 500;

/// Measures first attaches, which inject the agent (tiptoe's code in the program), and later attaches, which reuse it.
pub(crate) fn run(options: &Options) -> Result<Table, Error> {
    let mut table = Table {
        bench: "attach".into(),
        rows: Vec::new(),
        ..Table::default()
    };
    for site in ATTACH {
        let (mut first, mut again, mut detached) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            let mut target = Target::start(&[site])?;
            for times in [&mut first, &mut again] {
                let (attach, detach) = once(&mut target, site, options)?;
                times.push(attach);
                detached.push(detach);
            }
        }
        for (case, times) in [
            ("attach_first", first),
            ("attach_again", again),
            ("detach", detached),
        ] {
            table.rows.push(table_row(case, site, &times, "ms"));
        }
        for &threads in &options.threads {
            stillness(&mut table, site, threads, options)?;
        }
    }
    Ok(table)
}

fn counted<'a>(sites: &'a [Site], options: &Options) -> TraceRequest<'a> {
    TraceRequest {
        agent: options.agent,
        sites,
        via: Via::Agent,
        filter: None,
        under: None,
        by: None,
        calls: Calls::Entries,
        locked_lookups: false,
    }
}

/// Returns the ms to attach and to detach.
fn once(target: &mut Target, site: Site, options: &Options) -> Result<(f64, f64), Error> {
    let from = Instant::now();
    let sites = [site];
    let traced = counted(&sites, options);
    let mut tracing = Tracing::start(target, &traced)?;
    let attached = Instant::now();
    tracing.detach(target, &sites)?;
    let detached = Instant::now();
    tracing.finish()?;
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    Ok((ms(attached - from), ms(detached - attached)))
}

/// `threads - 1` other threads wait, because the injection prefers a waiting thread.
fn stillness(table: &mut Table, site: Site, threads: u32, options: &Options) -> Result<(), Error> {
    let mut cases = [
        ("still_idle", Vec::new()),
        ("still_first", Vec::new()),
        ("still_again", Vec::new()),
    ];
    for _ in 0..options.rounds {
        let mut target = Target::start(&[site])?;
        for (case, times) in &mut cases {
            let sites = [site];
            let traced = counted(&sites, options);
            let tracing = (*case != "still_idle").then(|| Tracing::begin(target.pid(), &traced));
            times.push(target.gap_ns(WATCH_MS, threads - 1)? / 1e6);
            if let Some(mut tracing) = tracing {
                tracing.wait(&mut target, &sites)?;
                tracing.finish()?;
            }
        }
    }
    let rows = cases.iter().map(|(case, times)| TableRow {
        threads: Some(threads),
        ..table_row(case, site, times, "ms")
    });
    table.rows.extend(rows);
    Ok(())
}

fn table_row(case: &str, site: Site, times: &[f64], unit: &'static str) -> TableRow {
    TableRow {
        sites: Some(site.functions),
        ..TableRow::new(case, times, unit).at("push")
    }
}
