//! The CPU time of two threads, relative to the elapsed time.

use std::error::Error;
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use lapidary::{DType, Gpu, Options, Tensor};

/// In percent of a core.
pub(crate) const MOST_SHARE: f64 = 2.0;

/// Name of the serving thread, cut to the length that Linux keeps.
const SERVER: &str = "lapidary monito";

/// Numbers of tensors' makers: a small program, a large one, and more than the server sends.
const MAKERS: [usize; 3] = [16, 128, 1024];

/// Measures each for `seconds`. Returns whether both stay below the limit.
pub(crate) fn measure(seconds: f64) -> Result<bool, Box<dyn Error>> {
    let mut is_little = true;
    println!(
        "{:>8} {:>8}  {:>12} {:>12}",
        "makers", "slabs", "serving", "top"
    );
    for makers in MAKERS {
        let gpu = Gpu::open(Options::from_env()?)?;
        let mut held = Vec::new();
        for index in 0..makers {
            held.push(tensor(&gpu, index)?);
        }
        gpu.finish()?;
        let path = std::env::temp_dir().join(format!("lapidary-bench-{}", std::process::id()));
        let served = lapidary_tools::socket::serve(&gpu, Some(&path.join("s")))?;
        let top = Top::start(served.path())?;
        let server = format!("/proc/self/task/{}", server()?);

        // The first second includes a full redraw and the loading of programs.
        work(&gpu, &mut held, 1.0)?;
        let (started, before) = (Instant::now(), [cpu_s(&server)?, top.cpu_s()?]);
        work(&gpu, &mut held, seconds)?;
        let (passed_s, after) = (
            started.elapsed().as_secs_f64(),
            [cpu_s(&server)?, top.cpu_s()?],
        );
        let shares = [0, 1].map(|of| 100.0 * (after[of] - before[of]) / passed_s);
        if shares.contains(&0.0) {
            return Err(
                "the server or `lapidary top` did nothing: does `lapidary top` run?".into(),
            );
        }
        println!(
            "{makers:>8} {:>8}  {:>10.2} % {:>10.2} %",
            gpu.memory().stats().slabs.len(),
            shares[0],
            shares[1]
        );
        is_little &= shares.iter().all(|share| *share <= MOST_SHARE);
        drop((top, served));
        fs::remove_dir_all(&path)?;
    }
    Ok(is_little)
}

fn tensor(gpu: &Gpu, index: usize) -> lapidary::Result<Tensor> {
    let len = 1000 + index * 37 % 5000;
    Ok(gpu
        .zeros(&[len], DType::F32)?
        .named(&format!("maker {index}")))
}

/// Changes something between any two pictures.
fn work(gpu: &Gpu, held: &mut [Tensor], seconds: f64) -> lapidary::Result<()> {
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let mut round = 0;
    while Instant::now() < until {
        let index = round * 7 % held.len();
        held[index] = tensor(gpu, index)?;
        gpu.flush()?;
        round += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The serving thread of this process.
fn server() -> Result<String, Box<dyn Error>> {
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?;
        if fs::read_to_string(task.path().join("comm"))?.trim() == SERVER {
            return Ok(task.file_name().to_string_lossy().into_owned());
        }
    }
    Err("no thread serves".into())
}

/// The CPU time of a thread, in seconds.
fn cpu_s(task: &str) -> Result<f64, Box<dyn Error>> {
    let told = fs::read_to_string(format!("{task}/schedstat"))?;
    let on_core_ns = told.split_whitespace().next().ok_or("an empty schedstat")?;
    Ok(on_core_ns.parse::<u64>()? as f64 / 1e9)
}

/// `lapidary top` in its own terminal.
struct Top {
    name: String,
    pid: u32,
}

impl Top {
    fn start(socket: &std::path::Path) -> Result<Top, Box<dyn Error>> {
        let name = format!("lapidary-bench-{}", std::process::id());
        let mut start = Command::new("tmux");
        start.args(["-u", "-L", &name, "-f", "/dev/null", "new-session", "-d"]);
        start.args(["-x", "120", "-y", "32", "-P", "-F", "#{pane_pid}"]);
        start.args([env!("CARGO_BIN_EXE_lapidary"), "top", "--every", "100"]);
        let ran = start.arg(socket).env_remove("TMUX").output();
        let ran = ran.map_err(|error| format!("this bench needs tmux: {error}"))?;
        let pid = String::from_utf8_lossy(&ran.stdout).trim().parse();
        let pid = pid.map_err(|_| String::from_utf8_lossy(&ran.stderr).into_owned())?;
        Ok(Top { name, pid })
    }

    /// The CPU time of all its threads, in seconds.
    fn cpu_s(&self) -> Result<f64, Box<dyn Error>> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.pid))?;
        let mut sum_s = 0.0;
        for task in tasks {
            sum_s += cpu_s(&task?.path().to_string_lossy())?;
        }
        Ok(sum_s)
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let mut end = Command::new("tmux");
        let _ = end.args(["-L", &self.name, "kill-server"]).output();
    }
}
