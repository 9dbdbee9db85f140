//! `tiptoe bench`: what tiptoe's own parts cost, beside the alternatives.

use std::process::ExitCode;

use tiptoe_bench::{Error, Options};

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::output::Output;
use crate::probe::AGENT;

/// Runs one bench, or lists them all.
pub fn run(args: &BenchArgs) -> Result<ExitCode, Failure> {
    let printed = match &args.name {
        Some(name) => table(name, args)?,
        None => list(),
    };
    Output::Stdout.write(&printed)?;
    Ok(ExitCode::SUCCESS)
}

fn table(name: &str, args: &BenchArgs) -> Result<String, Failure> {
    let table = tiptoe_bench::run(name, &options(args))?;
    if !args.json {
        return Ok(table.to_string());
    }
    let json = serde_json::to_string(&table);
    let json =
        json.map_err(|error| Failure::new(format!("the rows have no JSON form: {error}")))?;
    Ok(json + "\n")
}

fn options(args: &BenchArgs) -> Options {
    let usual = Options::new(AGENT);
    Options {
        rounds: args.rounds.map_or(usual.rounds, usize::from),
        ms: args.ms.unwrap_or(usual.ms),
        cpus: args.cpus.unwrap_or(usual.cpus),
        ..usual
    }
}

fn list() -> String {
    let benches = tiptoe_bench::list().iter();
    benches
        .map(|bench| format!("{:<10}  {}\n", bench.name, bench.about))
        .collect()
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::Trace(error) => Failure::from(error),
            Error::Unknown(_) => Failure::new(error.to_string()).hint("tiptoe bench lists them"),
            _ => Failure::new(error.to_string()),
        }
    }
}
