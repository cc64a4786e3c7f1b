//! The socket that serves statistics: who may connect, what a hostile client can do, and `lapidary
//! top`.

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use lapidary::sim::SimOptions;
use lapidary::{DType, Gpu, Tensor, stats::MemoryStats};
use lapidary_tools::socket::{Remote, serve};

use crate::cli::{check_fails, program, run};

/// The id of another user.
const NOBODY: u32 = 65534;

/// A short path for a socket. Folders of the build have too long names.
fn place(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("lapidary-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder.join("s")
}

fn open() -> (Gpu, Tensor) {
    let (gpu, _) = Gpu::simulated(SimOptions::default()).unwrap();
    let kept = gpu.zeros(&[1 << 20], DType::U8).unwrap().named("kept");
    kept.force().unwrap();
    (gpu, kept)
}

#[test]
fn top_prints_what_the_other_process_holds_and_notices_its_end() {
    let (gpu, _kept) = open();
    let path = place("top");
    let served = serve(&gpu, Some(&path)).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(
        fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777,
        0o700
    );

    let name = path.to_str().unwrap();
    let ran = run(&["top", name, "--json", "--count", "2", "--every", "10"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""));
    let samples: Vec<MemoryStats> = ran
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].live_bytes.now, 1 << 20);
    assert_eq!(samples[0].tags[0].tag, gpu.memory().stats().tags[0].tag);
    check_fails(&["top", name], &["needs a terminal", "--json"]);

    let mut remote = Remote::connect(&path).unwrap();
    assert_eq!(remote.memory().unwrap().live_bytes.now, 1 << 20);
    drop(served);
    let error = remote.memory().unwrap_err().to_string();
    assert!(error.contains("the process has ended"), "{error}");
    assert!(!path.exists());
    let again = remote.memory().unwrap_err().to_string();
    assert!(again.contains("the process has ended"), "{again}");
    check_fails(&["top", name, "--json"], &[name, "No such file"]);
}

#[test]
fn a_snapshot_comes_on_demand() {
    let (gpu, _kept) = open();
    gpu.memory().keep_history(100);
    let _later = gpu.zeros(&[100], DType::U8).unwrap().force();
    let path = place("demand");
    let _served = serve(&gpu, Some(&path)).unwrap();
    let mut remote = Remote::connect(&path).unwrap();
    let snapshot = remote.snapshot().unwrap();
    assert!(!snapshot.moments.is_empty());
    assert_eq!(snapshot.slabs, gpu.memory().snapshot().slabs);
    // Both requests go over one connection, in any order.
    assert_eq!(remote.memory().unwrap().live_bytes.now, 1 << 20);
    assert_eq!(remote.snapshot().unwrap().slabs, snapshot.slabs);

    let file = path.with_file_name("demand.json").into_os_string();
    let file = file.into_string().unwrap();
    let ran = run(&["top", path.to_str().unwrap(), "--snapshot", &file]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), ""), "{ran:?}");
    let ran = run(&["view", &file]);
    assert!(ran.out.contains("`kept`"), "{}", ran.out);
}

#[test]
fn top_finds_the_one_program_that_serves_and_asks_which_of_several() {
    let folder = place("found").with_file_name("runtime");
    fs::create_dir_all(&folder).unwrap();
    let top = |args: &[&str]| {
        let mut top = program();
        top.env("XDG_RUNTIME_DIR", &folder)
            .args(["top", "--json", "--count", "1"])
            .args(args);
        let output = top.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (code, _, said) = top(&[]);
    assert!(
        code == Some(1) && said.contains("no program of yours serves"),
        "{said}"
    );
    let (gpu, _kept) = open();
    let at = |name: &str| folder.join("lapidary").join(name);
    let pid = std::process::id();
    let _first = serve(&gpu, Some(&at(&format!("{pid}.sock")))).unwrap();
    assert_eq!(top(&[]).0, Some(0));
    assert_eq!(top(&[&pid.to_string()]).0, Some(0));
    assert!(top(&["1"]).2.contains("process 1 serves no statistics"));
    let second = serve(&gpu, Some(&at(&format!("{pid}-2.sock")))).unwrap();
    let (code, _, said) = top(&[]);
    assert!(
        code == Some(1) && said.contains("which?") && said.contains("-2.sock"),
        "{said}"
    );
    // The programs have one name; process, arguments and memory tell them apart.
    drop(second);
    let (other, _) = Gpu::simulated(SimOptions::default()).unwrap();
    let _second = serve(&other, Some(&at(&format!("{pid}-2.sock")))).unwrap();
    let said = top(&[]).2;
    for expected in [
        format!("({pid}): 1.00 MiB live on simulated device"),
        format!("({pid}-2): 0 B live on simulated device"),
    ] {
        assert!(said.contains(&expected), "{expected}: {said}");
    }
    let arguments: Vec<String> = std::env::args().skip(1).take(1).collect();
    assert!(said.contains(&arguments.join(" ")), "{said}");
}

#[test]
fn nothing_that_a_client_sends_or_leaves_unread_keeps_others_from_their_answer() {
    let (gpu, _kept) = open();
    let path = place("hostile");
    let served = serve(&gpu, Some(&path)).unwrap();
    let connect = || UnixStream::connect(&path).unwrap();
    let patient = Duration::from_secs(20);

    let mut garbage = connect();
    garbage.set_read_timeout(Some(patient)).unwrap();
    // The first byte that belongs to no request ends the connection, so the rest may fail.
    let _ = garbage.write_all(&[0xff; 1 << 20]);
    let end = garbage.read(&mut [0; 16]);
    let is_dropped = match &end {
        Ok(read) => *read == 0,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    };
    assert!(is_dropped, "{end:?}");

    // Clients that ask and never read, send nothing, or send half a request.
    let mut deaf = connect();
    deaf.set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let mut silent: Vec<UnixStream> = (0..50).map(|_| connect()).collect();
    silent
        .iter_mut()
        .step_by(2)
        .for_each(|half| drop(half.write_all(b"memo")));
    for _ in 0..10_000 {
        if deaf.write_all(b"memory 1\n").is_err() {
            break;
        }
    }
    for _ in 0..20 {
        let mut remote = Remote::connect(&path).unwrap();
        assert_eq!(remote.memory().unwrap().live_bytes.now, 1 << 20);
    }
    // Dropping the guard does not wait for them.
    drop(served);
    drop((deaf, silent));
}

/// The server sends endless blanks first, then two answers to one request, then a correct answer.
#[test]
fn who_answers_too_slowly_or_too_much_is_asked_anew() {
    let (gpu, _kept) = open();
    let path = place("slow");
    let served = serve(&gpu, Some(&path)).unwrap();
    let mut asked = UnixStream::connect(&path).unwrap();
    asked.write_all(b"memory 1\n").unwrap();
    let mut line = String::new();
    BufReader::new(asked).read_line(&mut line).unwrap();
    drop(served);

    let listener = UnixListener::bind(&path).unwrap();
    let answering = std::thread::spawn(move || {
        let (mut slow, _) = listener.accept().unwrap();
        while slow.write_all(b" ").is_ok() {
            std::thread::sleep(Duration::from_millis(100));
        }
        for answers in [2, 1] {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 9]).unwrap();
            stream.write_all(line.repeat(answers).as_bytes()).unwrap();
        }
    });
    let mut remote = Remote::connect(&path).unwrap();
    for said in ["it does not answer", "not one of lapidary"] {
        let error = remote.memory().unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    assert_eq!(remote.memory().unwrap().live_bytes.now, 1 << 20);
    answering.join().unwrap();
}

#[test]
fn names_of_any_length_make_no_long_answer() {
    let (gpu, _kept) = open();
    let long: Vec<Tensor> = (0..8)
        .map(|_| {
            let tensor = gpu
                .zeros(&[64], DType::F32)
                .unwrap()
                .named(&"n".repeat(1 << 20));
            tensor.force().unwrap();
            tensor
        })
        .collect();
    let path = place("names");
    let _served = serve(&gpu, Some(&path)).unwrap();
    let stats = Remote::connect(&path).unwrap().memory().unwrap();
    let longest = stats
        .tags
        .iter()
        .filter_map(|tag| tag.tag.as_ref()?.name())
        .map(str::len)
        .max();
    assert!(longest.unwrap() < 300, "{longest:?}");
    drop(long);
}

#[test]
fn a_socket_lies_only_where_nobody_else_can_reach_it() {
    let (gpu, _kept) = open();
    let refuses = |path: &PathBuf, said: &str| {
        let error = serve(&gpu, Some(path)).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let path = place("open");
    let folder = path.parent().unwrap().to_owned();
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    refuses(&path, "open to other users (mode 755)");
    fs::set_permissions(&folder, Permissions::from_mode(0o700)).unwrap();

    fs::write(&path, "precious").unwrap();
    refuses(&path, "is not a socket");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    refuses(&folder.join("n".repeat(200)), "SUN_LEN");
    symlink(&folder, folder.join("link")).unwrap();
    refuses(&folder.join("link").join("s"), "is a symbolic link");

    let served = serve(&gpu, Some(&path)).unwrap();
    refuses(&path, "already serves");
    // The guard must not remove another file of that name.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(served);
    assert_eq!(fs::read(&path).unwrap(), b"precious");
}

/// Only root can act as two users. Without root this is not tested.
#[test]
fn a_socket_of_another_user_is_refused_from_both_ends() {
    let (gpu, _kept) = open();
    let path = place("other");
    let _served = serve(&gpu, Some(&path)).unwrap();
    if fs::metadata(&path).unwrap().uid() != 0 {
        eprintln!("skipped: not the administrator");
        return;
    }
    // Even if the folder is open to everyone, the server checks the client.
    let folder = path.parent().unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let stranger = |code: &str| {
        let mut python = std::process::Command::new("python3");
        python.args(["-c", code]).arg(&path).uid(NOBODY).gid(NOBODY);
        python.output()
    };
    let ask = "import socket,sys\ns=socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\n\
               try:\n s.sendall(b'memory 1\\n'); print(len(s.recv(100)))\nexcept OSError: print(0)";
    match stranger(ask) {
        Ok(output) => assert_eq!(String::from_utf8_lossy(&output.stdout), "0\n", "{output:?}"),
        Err(error) => eprintln!("skipped in part: no python3 ({error})"),
    }
    chown(&path, Some(NOBODY), None).unwrap();
    let error = Remote::connect(&path).unwrap_err().to_string();
    assert!(
        error.contains("belongs to another user (uid 65534"),
        "{error}"
    );
    chown(folder, Some(NOBODY), None).unwrap();
    let error = serve(&gpu, Some(&folder.join("t")))
        .unwrap_err()
        .to_string();
    assert!(error.contains("belongs to another user"), "{error}");
}
