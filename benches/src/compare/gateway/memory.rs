//! Measures the gateway's memory at full load, every request with a new key. Receipts accumulate on disk; memory
//! grows until the caches are full and must then stay constant.

use std::time::{Duration, Instant};

use super::servers::GatewayServers;
use super::wrk::{Keys, Wrk, parse};
use crate::process::{Missing, folder_bytes, resident_megabytes};
use crate::report::{Findings, Goal, Growth, Row, Side, Unit};
use crate::scale::Scale;
use crate::turns::{median, progress};

const CONNECTIONS: usize = 64;
/// Samples of the memory in the whole run.
const LOOKS: u32 = 300;
/// What the last quarter may have, for each megabyte of the third.
const GROWTH_MAX: f64 = 1.05;

/// Samples the resident memory every few seconds.
pub fn run(scale: &Scale) -> Result<Findings, Missing> {
    let (wrk, servers) = (Wrk::find()?, GatewayServers::start()?);
    let start = Instant::now();
    let mut load = wrk.start(servers.gateway_port, Keys::Fresh, CONNECTIONS, scale.memory);
    let mut looks = Vec::new();
    let mut told = Duration::ZERO;
    while load.try_wait().unwrap().is_none() {
        let megabytes = resident_megabytes(servers.gateway.pid()).expect("the gateway runs");
        looks.push((start.elapsed().as_secs_f64() / 60.0, megabytes));
        if start.elapsed() >= told {
            progress(&format!("{:.1} min: {megabytes:.0} MB", start.elapsed().as_secs_f64() / 60.0));
            told += scale.memory / 20;
        }
        std::thread::sleep(scale.memory / LOOKS);
    }
    let output = load.wait_with_output().unwrap();
    let load = parse(&String::from_utf8_lossy(&output.stdout)).expect("every request was answered well");
    let half = &looks[looks.len() / 2..];
    let (third, last) = half.split_at(half.len() / 2);
    // Write buffers fill and are let go all the time, so one sample says little.
    let middle = |looks: &[(f64, f64)]| median(&looks.iter().map(|look| look.1).collect::<Vec<_>>());
    let disk = folder_bytes(&servers.folder.path().join("receipts")) as f64 / f64::from(1 << 20);
    let one = |name, value| Side::new(name, vec![value]);
    let rows = vec![
        Row::ratio(
            "resident memory, last quarter of the run / third",
            Unit::Megabytes,
            &one("last quarter", middle(last)),
            &one("third quarter", middle(third)),
        )
        .goal(Goal::AtMost(GROWTH_MAX)),
        Row::alone("slope of the second half", Unit::MegabytesPerMinute, &one("slope", slope(half))),
        Row::alone("requests meanwhile", Unit::PerSecond, &one("requests", load.value())),
        Row::alone("receipts on disk at the end", Unit::Megabytes, &one("disk", disk)),
    ];
    let growth = Growth {
        what: "resident memory of the gateway at full load".to_owned(),
        over: "minutes",
        unit: Unit::Megabytes,
        curves: vec![("resident memory".to_owned(), looks)],
    };
    Ok(Findings { rows, growths: vec![growth] })
}

/// The slope of the straight line that fits best.
fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let middle_x = points.iter().map(|point| point.0).sum::<f64>() / count;
    let middle_y = points.iter().map(|point| point.1).sum::<f64>() / count;
    let (mut both, mut square) = (0.0, 0.0);
    for (x, y) in points {
        both += (x - middle_x) * (y - middle_y);
        square += (x - middle_x).powi(2);
    }
    if square > 0.0 { both / square } else { 0.0 }
}
