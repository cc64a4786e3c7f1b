//! Microsoft's compilers as a program: a few lines of C, built and run here, that call their DLLs.
//!
//! The DLLs are downloaded where they are used and never become part of an artefact.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use super::figures::{Compilation, Outcome};
use crate::process::{Result, capture, command, each_line, root, run_quietly, target_dir};
use crate::{apt, pip};

/// A compiler of HLSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The compiler of every Windows, for shader model 5.1. Version 10.0.16299.
    Fxc,
    /// The compiler that an app ships, for shader model 6.
    Dxc,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Fxc => "fxc",
            Kind::Dxc => "dxc",
        }
    }

    /// Time limit of a compilation, in milliseconds of CPU time. DXC takes long for products of
    /// software adapters through several windows, which are rare.
    fn limit_ms(self) -> &'static str {
        match self {
            Kind::Fxc => "15000",
            Kind::Dxc => "60000",
        }
    }

    /// The file ending of the suite's texts for this compiler.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Kind::Fxc => ".sm5.hlsl",
            Kind::Dxc => ".sm6.hlsl",
        }
    }

    /// A package of PyPI with the DLLs, and the Python version and interface that it is for.
    fn package(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Kind::Fxc => ("cefpython3==66.1", "37", "cp37m"),
            Kind::Dxc => ("slangpy==0.43.1", "312", "cp312"),
        }
    }

    fn members(self) -> &'static [&'static str] {
        match self {
            Kind::Fxc => &["cefpython3/d3dcompiler_47.dll"],
            Kind::Dxc => &["slangpy/dxcompiler.dll", "slangpy/dxil.dll"],
        }
    }
}

const UNPACK: &str = "import pathlib, sys, zipfile
archive, folder, *members = sys.argv[1:]
for member in members:
    file = pathlib.Path(folder) / pathlib.Path(member).name
    file.write_bytes(zipfile.ZipFile(archive).read(member))";

/// Number of programs that run at a time.
const PARALLEL: usize = 2;

/// The folder with the program and the DLLs.
pub(super) struct Compiler {
    kind: Kind,
    folder: PathBuf,
}

impl Compiler {
    /// Installs the missing packages, downloads the DLLs and builds the program.
    pub(super) fn install(kind: Kind) -> Result<Self> {
        if apt::is_here() {
            apt::install(&["wine", "wine64", "gcc-mingw-w64-x86-64"])?;
        }
        let folder = target_dir().join(kind.name());
        fs::create_dir_all(&folder).map_err(|error| explain(&folder, &error))?;
        fetch(kind, &folder)?;
        run_quietly(
            command("x86_64-w64-mingw32-gcc")
                .args(["-O2", "-D__USE_MINGW_ANSI_STDIO=1"])
                .arg(root().join("xtask/src/ci/hlsl/compile.c"))
                .arg("-o")
                .arg(folder.join("compile.exe")),
        )?;
        let compiler = Compiler { kind, folder };
        // Wine creates its own folder first. Two programs at once would both create it.
        compiler.compile_some(0, &[])?;
        Ok(compiler)
    }

    /// Compiles all texts.
    pub(super) fn compile(&self, texts: &[PathBuf]) -> Result<Vec<Compilation>> {
        let done = Mutex::new(Vec::new());
        let share = |index: usize| {
            let mut rest: Vec<_> = texts.iter().skip(index).step_by(PARALLEL).collect();
            while !rest.is_empty() {
                let mut some = self.compile_some(index, &rest)?;
                if some.is_empty() {
                    some.push(fallen(rest[0]));
                }
                rest.drain(..some.len().min(rest.len()));
                let mut done = done.lock().map_err(|error| format!("{error}."))?;
                done.extend(some);
            }
            Ok::<(), String>(())
        };
        thread::scope(|scope| {
            let shares = (0..PARALLEL).map(|index| scope.spawn(move || share(index)));
            let shares: Vec<_> = shares.collect();
            shares.into_iter().try_for_each(|share| {
                let ended = share.join();
                ended.unwrap_or_else(|_| Err("a thread that compiles panicked.".into()))
            })
        })?;
        done.into_inner().map_err(|error| format!("{error}."))
    }

    /// Compiles texts one at a time.
    pub(super) fn compile_alone<'a>(
        &self,
        texts: impl Iterator<Item = &'a PathBuf>,
    ) -> Result<Vec<Compilation>> {
        let mut done = Vec::new();
        for text in texts {
            done.extend(self.compile_some(0, &[text])?);
        }
        Ok(done)
    }

    /// Compiles the yardstick a few times, alone. Returns the least milliseconds.
    pub(super) fn yardstick(&self) -> Result<u64> {
        let text = root().join("xtask/src/ci/hlsl/yardstick.hlsl");
        let times = self.compile_some(0, &[&text; 5])?;
        let compiled = times
            .iter()
            .filter(|time| time.outcome == Outcome::Compiled);
        let least = compiled.map(|time| time.ms).min();
        least.ok_or_else(|| format!("{} does not compile the yardstick.", self.kind.name()))
    }

    /// Compiles texts one after the other, to the end or until one takes too long.
    fn compile_some(&self, index: usize, texts: &[&PathBuf]) -> Result<Vec<Compilation>> {
        let list = self.folder.join(format!("list-{index}"));
        let names: String = (texts.iter())
            .map(|text| format!("{}\n", text.display()))
            .collect();
        fs::write(&list, names).map_err(|error| explain(&list, &error))?;
        let mut compilations = Vec::new();
        let mut program = self.program();
        program
            .args([self.kind.name(), self.kind.limit_ms()])
            .arg(&list);
        each_line(&mut program, |line| {
            compilations.extend(read(line));
        })?;
        Ok(compilations)
    }

    fn program(&self) -> Command {
        let program = self.folder.join("compile.exe");
        if cfg!(windows) {
            return command(&program.to_string_lossy());
        }
        let mut wine = command("wine");
        wine.arg(program)
            .env("WINEPREFIX", self.folder.join("wine"))
            .env("WINEDEBUG", "-all")
            .env(
                "WINEDLLOVERRIDES",
                "mscoree=;mshtml=;winemenubuilder.exe=;d3dcompiler_47=n",
            );
        wine
    }
}

/// Puts FXC's DLL into a folder, unless it is there.
pub(crate) fn fetch_dll(folder: &Path) -> Result {
    fetch(Kind::Fxc, folder)
}

/// Puts the DLLs into a folder, unless they are there.
fn fetch(kind: Kind, folder: &Path) -> Result {
    let names = kind
        .members()
        .iter()
        .filter_map(|member| member.rsplit('/').next());
    if names.into_iter().all(|name| folder.join(name).exists()) {
        return Ok(());
    }
    pip::install()?;
    let ((package, python, abi), download) = (kind.package(), folder.join("download"));
    let system = [
        ["--platform", "win_amd64"],
        ["--implementation", "cp"],
        ["--python-version", python],
        ["--abi", abi],
    ];
    let wheel = pip::download(package, system.as_flattened(), &download)?;
    let mut unpack = pip::python();
    unpack.args(["-c", UNPACK]).arg(&wheel).arg(folder);
    capture(unpack.args(kind.members()))?;
    fs::remove_dir_all(&download).map_err(|error| explain(&download, &error))
}

/// The result for a text that ended the program.
fn fallen(text: &Path) -> Compilation {
    Compilation {
        outcome: Outcome::Refused,
        ms: 0,
        name: name_of(text),
        message: "the compiler ended without a word".into(),
    }
}

/// Parses a line of the program: outcome, milliseconds, file, message.
fn read(line: &str) -> Option<Compilation> {
    let mut fields = line.trim_end_matches(['\r', '\n']).split('\t');
    let outcome = match fields.next()? {
        "ok" => Outcome::Compiled,
        "late" => Outcome::Late,
        "refused" => Outcome::Refused,
        _ => return None,
    };
    Some(Compilation {
        outcome,
        ms: fields.next()?.parse().ok()?,
        name: last_name(fields.next()?),
        message: fields.next().unwrap_or_default().into(),
    })
}

/// A file's name without its folder.
pub(super) fn name_of(path: &Path) -> String {
    last_name(&path.to_string_lossy())
}

/// The same for a path in Windows' form.
fn last_name(path: &str) -> String {
    let name = path.rsplit(['/', '\\']).next();
    name.unwrap_or(path).to_owned()
}

fn explain(path: &Path, error: &std::io::Error) -> String {
    format!("{}: {error}.", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_program_is_read() {
        let text =
            read("refused\t12\tZ:\\a\\b-1.sm5.hlsl\terror X3511: unable\r\n").expect("a line");
        assert_eq!((text.outcome, text.ms), (Outcome::Refused, 12));
        assert_eq!(text.name, "b-1.sm5.hlsl");
        assert_eq!(text.message, "error X3511: unable");
        assert!(read("0024:err:something of Wine").is_none());
    }
}
