//! Notes between two ranks, beside the calls of all: a rank has failed; are you there?
//!
//! A rank reads notes whenever it waits for others or for its own backward, and only then. A rank
//! that computes otherwise, is stopped or has died does not answer. An answer says which call the
//! rank has come to: the thread of a backward may hang while the rank answers.

use std::cell::RefCell;

use mpi::point_to_point::MatchedReceiveVec;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Source};

use crate::error::{Error, Result};
use crate::flight::{self, Flight};
use crate::late;
use crate::place::Place;

/// The first byte of a note. Reasons follow the first three, and a place follows an answer.
const FAILED: u8 = 1;
const BROKEN: u8 = 2;
const LATE: u8 = 3;
const ASK: u8 = 4;
const ANSWER: u8 = 5;

/// Most bytes of a note. MPI sends short messages without waiting for the other side.
const MOST_BYTES: usize = 2000;

pub(crate) struct Notes {
    comm: SimpleCommunicator,
    rank: usize,
    count: usize,
    /// Notes on their way. They are kept until MPI has read them.
    sent: RefCell<Vec<Flight>>,
    /// The first error that another rank told.
    first_error: RefCell<Option<Told>>,
    /// The ranks whose programs have ended with an error.
    ended: RefCell<Vec<bool>>,
    /// Who has answered since the last question, and where they are.
    answers: RefCell<Vec<Option<Place>>>,
}

/// An error on another rank.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The rank had this error.
    Failed(usize, String),
    /// It waited too long for others.
    Late(Error),
}

impl Notes {
    /// All ranks make it at the same time.
    pub(crate) fn new(world: &SimpleCommunicator) -> Result<Notes> {
        let comm = world.duplicate();
        flight::return_errors(&comm)?;
        let count = comm.size() as usize;
        Ok(Notes {
            rank: comm.rank() as usize,
            count,
            comm,
            sent: RefCell::default(),
            first_error: RefCell::default(),
            ended: RefCell::new(vec![false; count]),
            answers: RefCell::new(vec![None; count]),
        })
    }

    /// Reads all notes that have arrived, and answers questions by where this rank is.
    pub(crate) fn read(&self, place: impl Fn() -> Place) {
        while let Some(arrived) = self.comm.any_process().immediate_matched_probe() {
            let (note, status) = arrived.matched_receive_vec::<u8>();
            let from = status.source_rank() as usize;
            match note.split_first() {
                Some((&kind @ (FAILED | BROKEN | LATE), reason)) => {
                    let mut first = self.first_error.borrow_mut();
                    first.get_or_insert_with(|| Told::new(from, kind, reason));
                    self.ended.borrow_mut()[from] |= kind == FAILED;
                }
                Some((&ASK, _)) => {
                    let note = [vec![ANSWER], place().encode()].concat();
                    self.send(from, note);
                }
                Some((&ANSWER, place)) => {
                    self.answers.borrow_mut()[from] = Place::decode(place);
                }
                _ => {}
            }
        }
        let mut sent = self.sent.borrow_mut();
        sent.retain_mut(|flight| !flight.test().unwrap_or(true));
    }

    /// The first error that another rank told.
    pub(crate) fn first_error(&self) -> Option<Told> {
        self.first_error.borrow().clone()
    }

    /// Have the programs of all other ranks ended with an error?
    pub(crate) fn have_all_ended(&self) -> bool {
        let ended = self.ended.borrow();
        let mut others = (0..self.count).filter(|rank| *rank != self.rank);
        others.all(|rank| ended[rank])
    }

    /// Tells all other ranks that this one had an error in the middle of a call.
    pub(crate) fn send_broken(&self, error: &Error) {
        match late::encode(error) {
            Some(text) => self.send_reason(LATE, &text),
            None => self.send_reason(BROKEN, &error.to_string()),
        }
    }

    /// Tells all other ranks that the program of this one has ended with an error.
    pub(crate) fn send_failed(&self, reason: &str) {
        self.send_reason(FAILED, reason);
    }

    fn send_reason(&self, kind: u8, reason: &str) {
        let mut note = [&[kind], reason.as_bytes()].concat();
        note.truncate(MOST_BYTES);
        self.send_to_all(&note);
    }

    /// Asks all other ranks whether they are there.
    pub(crate) fn ask(&self) {
        self.answers.borrow_mut().fill(None);
        self.send_to_all(&[ASK]);
    }

    /// The other ranks, each with where it is. `None` for one that has not answered since.
    pub(crate) fn answers(&self) -> Vec<(usize, Option<Place>)> {
        let answers = self.answers.borrow().clone().into_iter().enumerate();
        answers.filter(|(rank, _)| *rank != self.rank).collect()
    }

    /// Have all other ranks answered since?
    pub(crate) fn have_all_answered(&self) -> bool {
        self.answers().iter().all(|(_, place)| place.is_some())
    }

    fn send_to_all(&self, note: &[u8]) {
        let others = (0..self.count).filter(|rank| *rank != self.rank);
        others.for_each(|rank| self.send(rank, note.to_vec()));
    }

    /// MPI may refuse to send to a rank that has died. That rank gives no answer, which tells, and
    /// the others get their notes.
    fn send(&self, to: usize, note: Vec<u8>) {
        if let Ok(flight) = Flight::send(&self.comm, to, note) {
            self.sent.borrow_mut().push(flight);
        }
    }
}

impl Told {
    fn new(from: usize, kind: u8, reason: &[u8]) -> Told {
        let reason = String::from_utf8_lossy(reason).into_owned();
        let late = Some(&reason).filter(|_| kind == LATE);
        match late.and_then(|text| late::decode(text)) {
            Some(error) => Told::Late(error),
            None => Told::Failed(from, reason),
        }
    }
}
