//! Notes between two ranks, beside the calls of all: a rank has failed; are you there?
//!
//! A rank reads notes whenever it waits for others, and only then. A rank that computes, is stopped
//! or has died does not answer.

use std::cell::RefCell;

use mpi::point_to_point::MatchedReceiveVec;
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Source};

use crate::error::Result;
use crate::flight::{self, Flight};

/// The first byte of a note. A reason follows the first two.
const FAILED: u8 = 1;
const BROKEN: u8 = 4;
const ASK: u8 = 2;
const ANSWER: u8 = 3;

/// Most bytes of a note. MPI sends short messages without waiting for the other side.
const MOST_BYTES: usize = 2000;

pub(crate) struct Notes {
    comm: SimpleCommunicator,
    rank: usize,
    count: usize,
    /// Notes on their way. They are kept until MPI has read them.
    sent: RefCell<Vec<Flight>>,
    /// The first rank that told of an error, with its reason.
    first_error: RefCell<Option<(usize, String)>>,
    /// The ranks whose programs have ended with an error.
    ended: RefCell<Vec<bool>>,
    /// Who has answered since the last question.
    answers: RefCell<Vec<bool>>,
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
            answers: RefCell::new(vec![false; count]),
        })
    }

    /// Reads all notes that have arrived, and answers questions.
    pub(crate) fn read(&self) -> Result<()> {
        while let Some(arrived) = self.comm.any_process().immediate_matched_probe() {
            let (note, status) = arrived.matched_receive_vec::<u8>();
            let from = status.source_rank() as usize;
            match note.split_first() {
                Some((&kind @ (FAILED | BROKEN), reason)) => {
                    let mut first = self.first_error.borrow_mut();
                    first.get_or_insert_with(|| {
                        (from, String::from_utf8_lossy(reason).into_owned())
                    });
                    self.ended.borrow_mut()[from] |= kind == FAILED;
                }
                Some((&ASK, _)) => self.send(from, vec![ANSWER])?,
                Some((&ANSWER, _)) => self.answers.borrow_mut()[from] = true,
                _ => {}
            }
        }
        let mut sent = self.sent.borrow_mut();
        sent.retain_mut(|flight| !flight.test().unwrap_or(true));
        Ok(())
    }

    /// The rank that told first of an error, and what it was.
    pub(crate) fn first_error(&self) -> Option<(usize, String)> {
        self.first_error.borrow().clone()
    }

    /// Have the programs of all other ranks ended with an error?
    pub(crate) fn have_all_ended(&self) -> bool {
        let ended = self.ended.borrow();
        let mut others = (0..self.count).filter(|rank| *rank != self.rank);
        others.all(|rank| ended[rank])
    }

    /// Tells all other ranks that this one had an error in the middle of a call.
    pub(crate) fn send_broken(&self, reason: &str) -> Result<()> {
        self.send_reason(BROKEN, reason)
    }

    /// Tells all other ranks that the program of this one has ended with an error.
    pub(crate) fn send_failed(&self, reason: &str) -> Result<()> {
        self.send_reason(FAILED, reason)
    }

    fn send_reason(&self, kind: u8, reason: &str) -> Result<()> {
        let mut note = [&[kind], reason.as_bytes()].concat();
        note.truncate(MOST_BYTES);
        self.send_to_all(&note)
    }

    /// Asks all other ranks whether they are there.
    pub(crate) fn ask(&self) -> Result<()> {
        self.answers.borrow_mut().fill(false);
        self.send_to_all(&[ASK])
    }

    /// The ranks that have not answered since.
    pub(crate) fn silent(&self) -> Vec<usize> {
        let answers = self.answers.borrow();
        let others = (0..self.count).filter(|rank| *rank != self.rank);
        others.filter(|rank| !answers[*rank]).collect()
    }

    fn send_to_all(&self, note: &[u8]) -> Result<()> {
        let mut others = (0..self.count).filter(|rank| *rank != self.rank);
        others.try_for_each(|rank| self.send(rank, note.to_vec()))
    }

    fn send(&self, to: usize, note: Vec<u8>) -> Result<()> {
        let flight = Flight::send(&self.comm, to, note)?;
        self.sent.borrow_mut().push(flight);
        Ok(())
    }
}
