//! The ranks of a program: who they are, how one waits for the others, and how they agree.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::thread;
use std::time::{Duration, Instant};

use lapidary::{Gpu, Options};
use mpi::Threading;
use mpi::environment::{self, Universe};
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;

use crate::error::{Error, Result};
use crate::flight::{self, Flight};
use crate::header::{HEADER_BYTES, Header, Kind};
use crate::late::Awaited;
use crate::notes::{Notes, Told};
use crate::place::{Doing, Place};

/// How long a rank waits for answers before it names those that gave none.
const ANSWER_TIME: Duration = Duration::from_secs(1);
/// A wait asks MPI without a pause for this time. Bytes move only while somebody asks.
const BUSY_TIME: Duration = Duration::from_millis(20);
/// Later it pauses for so long: others may need the core.
const PAUSE: Duration = Duration::from_micros(100);
const LONG_PAUSE: Duration = Duration::from_millis(1);
/// From when on the pauses are the long ones.
const LONG_TIME: Duration = Duration::from_millis(200);
/// Memory that is kept: what a sum has in work at a time.
const MOST_SPARES: usize = 6;
const LEAST_SPARE_BYTES: usize = 4096;
/// A wait looks for notes once in this many tests.
const TESTS_A_LOOK: u32 = 32;

/// Options of [`run`](crate::run).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RanksOptions {
    /// How long a call may wait for other ranks. It must be longer than what a rank computes
    /// between two calls, beyond what the others compute. It does not apply to what MPI does at its
    /// start and its end.
    pub timeout: Duration,
}

impl Default for RanksOptions {
    fn default() -> Self {
        RanksOptions {
            timeout: Duration::from_secs(300),
        }
    }
}

/// The processes that `mpirun` has started, as one of them sees them: see [`run`](crate::run).
///
/// The collective operations are methods. All ranks call the same ones in the same order, each with
/// a tensor of its own device. They belong to the thread that called `run`.
pub struct Ranks {
    rank: usize,
    /// Host and process of each rank. Before they meet, only its own.
    names: Vec<Name>,
    timeout: Duration,
    /// Calls that this rank has come to. Others may be on their way to the last one.
    number: Cell<u64>,
    /// Replicas that the ranks have agreed to make.
    replicas: Cell<u64>,
    /// The first error after which the ranks no longer agree.
    broken: RefCell<Option<Error>>,
    /// Memory of earlier calls.
    spares: RefCell<Vec<Vec<u8>>>,
    notes: Notes,
    comm: SimpleCommunicator,
    /// It ends MPI, so it is dropped last.
    universe: Universe,
    _thread: PhantomData<*const ()>,
}

#[derive(Clone, Debug)]
struct Name {
    host: String,
    process: u32,
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks")
            .field("rank", &self.rank)
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

impl Ranks {
    /// Starts MPI. [`meet`](Self::meet) comes next.
    pub(crate) fn start(options: RanksOptions) -> Result<Ranks> {
        let refuse = |reason: &str| {
            Err(Error::Start {
                reason: reason.into(),
            })
        };
        let Some((universe, provided)) =
            environment::initialize_with_threading(Threading::Funneled)
        else {
            return refuse("this process has started it already, and it starts once");
        };
        if provided < Threading::Funneled {
            return refuse("this MPI was built without threads");
        }
        let world = universe.world();
        // Open MPI reports a failed request to the handler of the world, whatever its communicator.
        flight::return_errors(&world)?;
        let comm = world.duplicate();
        flight::return_errors(&comm)?;
        let (rank, count) = (comm.rank() as usize, comm.size() as usize);
        let own = Name {
            host: environment::processor_name().unwrap_or_else(|_| "unknown".into()),
            process: std::process::id(),
        };
        let unknown = Name {
            host: String::new(),
            process: 0,
        };
        let mut names = vec![unknown; count];
        names[rank] = own;
        Ok(Ranks {
            rank,
            names,
            timeout: options.timeout,
            number: Cell::new(0),
            replicas: Cell::new(0),
            broken: RefCell::default(),
            spares: RefCell::default(),
            notes: Notes::new(&comm)?,
            comm,
            universe,
            _thread: PhantomData,
        })
    }

    /// Learns the names of all ranks. After an error the caller ends all of them: MPI would wait
    /// for a rank that does not answer, when it is dropped.
    pub(crate) fn meet(&mut self) -> Result<()> {
        const CALL: &str = "the start of lapidary-mpi";
        // A header's text may differ only in a refusal, so the name is no call.
        let own = &self.names[self.rank];
        let header = Header::new(Kind::Refusal, 0, own.process.into(), &own.host);
        let mut flight = Flight::all_gather(&self.comm, self.count(), header.encode())?;
        let waited = self.wait(CALL, &mut flight);
        self.unbroken(waited)?;
        let (_, all) = flight.end();
        for (other, bytes) in all.chunks(HEADER_BYTES).enumerate() {
            let Some(header) = Header::decode(bytes) else {
                return Err(self.stranger(CALL, other));
            };
            self.names[other] = Name {
                host: header.text,
                process: header.own as u32,
            };
        }
        Ok(())
    }

    /// The number of this process, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// The number of this process among those on its machine, from 0: those with lower ranks.
    pub fn local_rank(&self) -> usize {
        let host = &self.names[self.rank].host;
        let lower = self.names[..self.rank].iter();
        lower.filter(|name| name.host == *host).count()
    }

    /// A rank as a person looks for it: its number, its host and its process.
    pub fn name_of(&self, rank: usize) -> Option<String> {
        let name = self.names.get(rank)?;
        if name.host.is_empty() {
            return Some(format!("rank {rank} of {}", self.count()));
        }
        Some(format!(
            "rank {rank} of {} (process {} on {})",
            self.count(),
            name.process,
            name.host
        ))
    }

    /// Opens this rank's device: the ranks on a machine take its adapters in turn, software
    /// adapters only if there is no other. `options` hold for the device, the choice of adapters
    /// too: see [`lapidary::Options::adapter`].
    ///
    /// # Errors
    /// As [`Gpu::open`].
    pub fn open(&self, options: Options) -> Result<Gpu> {
        let indices = lapidary_core::Gpu::indices_of_all(&options)?;
        let index = indices[self.local_rank() % indices.len()];
        Ok(Gpu::open(Options {
            adapter: Some(index.to_string()),
            ..options
        })?)
    }

    pub(crate) fn named(&self, rank: usize) -> String {
        self.name_of(rank).unwrap_or_else(|| format!("rank {rank}"))
    }

    pub(crate) fn comm(&self) -> &SimpleCommunicator {
        &self.comm
    }

    /// Ends all processes. By the world, MPICH's `mpirun` kills them at once, and may lose what
    /// they have just printed. By another communicator, a rank of MPICH tells each of them, and may
    /// wait for ever for one that has died.
    pub(crate) fn abort(&self) -> ! {
        match self.notes.have_all_ended() {
            true => self.comm.abort(1),
            false => self.universe.world().abort(1),
        }
    }

    pub(crate) fn notes(&self) -> &Notes {
        &self.notes
    }

    /// Memory of an earlier call, with some contents.
    pub(crate) fn spare(&self) -> Vec<u8> {
        self.spares.borrow_mut().pop().unwrap_or_default()
    }

    /// Keeps memory for the next call, if it has room for a piece.
    pub(crate) fn take_back(&self, memory: [Vec<u8>; 2]) {
        let mut spares = self.spares.borrow_mut();
        for one in memory {
            if spares.len() < MOST_SPARES && one.capacity() >= LEAST_SPARE_BYTES {
                spares.push(one);
            }
        }
    }

    /// Tells all ranks what this one is about to do, and learns the same of them. An error unless
    /// all mean the same call. Returns each rank's own number.
    pub(crate) fn agree(&self, call: &str, own: u64) -> Result<Vec<u64>> {
        let (mine, all) = self.tell(Kind::Call, call, own)?;
        for (rank, header) in all.iter().enumerate() {
            if header.kind == Kind::Refusal {
                return Err(Error::Failed {
                    rank,
                    name: self.named(rank),
                    reason: header.text.clone(),
                });
            }
            if !mine.fits(header) {
                return Err(Error::Differs {
                    number: mine.number,
                    rank: self.rank,
                    here: mine.text,
                    other: rank,
                    there: header.text.clone(),
                });
            }
        }
        Ok(all.into_iter().map(|header| header.own).collect())
    }

    /// As [`agree`](Self::agree), or tells the others why this rank makes no call.
    pub(crate) fn agree_if<T>(
        &self,
        operation: &'static str,
        checked: Result<T>,
        call: impl FnOnce(&T) -> (String, u64),
    ) -> Result<(T, Vec<u64>)> {
        match checked {
            Ok(value) => {
                let (call, own) = call(&value);
                let numbers = self.agree(&call, own)?;
                Ok((value, numbers))
            }
            Err(error) => {
                self.tell(Kind::Refusal, &format!("{operation}: {error}"), 0)?;
                Err(error)
            }
        }
    }

    /// The number of a replica that all ranks have agreed to make: the same on all of them.
    pub(crate) fn count_replica(&self) -> u64 {
        self.replicas.set(self.replicas.get() + 1);
        self.replicas.get()
    }

    fn tell(&self, kind: Kind, text: &str, own: u64) -> Result<(Header, Vec<Header>)> {
        self.check()?;
        self.number.set(self.number.get() + 1);
        let mine = Header::new(kind, self.number.get(), own, text);
        let all = self.unbroken(self.all_headers(&mine))?;
        Ok((mine, all))
    }

    fn all_headers(&self, mine: &Header) -> Result<Vec<Header>> {
        let mut flight = Flight::all_gather(&self.comm, self.count(), mine.encode())?;
        self.wait(&mine.text, &mut flight)?;
        let (_, bytes) = flight.end();
        let headers = bytes.chunks(HEADER_BYTES).map(Header::decode);
        let headers = headers
            .enumerate()
            .map(|(rank, header)| header.ok_or_else(|| self.stranger(&mine.text, rank)));
        headers.collect()
    }

    /// The error for a rank that sent no header.
    fn stranger(&self, call: &str, other: usize) -> Error {
        Error::Differs {
            number: self.number.get().max(1),
            rank: self.rank,
            here: call.into(),
            other,
            there: "something of another program, another version of lapidary-mpi, or a machine \
                    with another order of bytes"
                .into(),
        }
    }

    /// Waits until a call is done. `operation` is its name for people.
    pub(crate) fn wait(&self, operation: &str, flight: &mut Flight) -> Result<()> {
        let start = Instant::now();
        let mut tests = 0_u32;
        while !flight.test()? {
            tests = tests.wrapping_add(1);
            let waited = start.elapsed();
            if tests.is_multiple_of(TESTS_A_LOOK) || waited > BUSY_TIME {
                self.check_notes(Doing::Waits(operation, start))?;
            }
            if waited > self.timeout {
                return Err(self.timed_out(operation, start)?);
            }
            pause(waited);
        }
        Ok(())
    }

    /// An error if a note says that another rank has failed. Others hear what this one does.
    pub(crate) fn check_notes(&self, doing: Doing<'_>) -> Result<()> {
        self.notes.read(|| Place::new(self.number.get(), doing));
        match self.notes.first_error() {
            None => Ok(()),
            Some(Told::Late(error)) => Err(error),
            Some(Told::Failed(rank, reason)) => Err(Error::Failed {
                rank,
                name: self.named(rank),
                reason,
            }),
        }
    }

    /// Finds out who does not answer, and who has not come to this call.
    fn timed_out(&self, operation: &str, since: Instant) -> Result<Error> {
        let waited = since.elapsed();
        self.notes.ask();
        let start = Instant::now();
        while start.elapsed() < ANSWER_TIME && !self.notes.have_all_answered() {
            self.check_notes(Doing::Waits(operation, since))?;
            thread::sleep(LONG_PAUSE);
        }
        let mut awaited = Awaited::default();
        for (rank, place) in self.notes.answers() {
            let name = self.named(rank);
            match place {
                None => awaited.silent.push((rank, name)),
                Some(place) if place.number < self.number.get() => {
                    awaited.late.push((rank, name, place));
                }
                Some(_) => {}
            }
        }
        Ok(awaited.error(self.rank, operation, waited))
    }

    /// An error if an earlier call ended in its middle.
    fn check(&self) -> Result<()> {
        self.broken.borrow().clone().map_or(Ok(()), Err)
    }

    /// Passes a result on. After an error in the middle of a call the ranks no longer agree. So all
    /// later calls have that error, and so have the other ranks.
    pub(crate) fn unbroken<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let mut broken = self.broken.borrow_mut();
            if broken.is_none() {
                *broken = Some(error.clone());
                // The rank that told this one of an error has told all. If MPI cannot send it, the
                // others find out by their time-out.
                if self.notes.first_error().is_none() {
                    self.notes.send_broken(error);
                }
            }
        }
        result
    }
}

/// Lets others have the core, longer if the wait is long.
fn pause(waited: Duration) {
    match waited {
        _ if waited < BUSY_TIME => thread::yield_now(),
        _ if waited < LONG_TIME => thread::sleep(PAUSE),
        _ => thread::sleep(LONG_PAUSE),
    }
}
