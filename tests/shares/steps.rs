//! The steps for a command: the launches that compute its operands again, and reads of the words
//! that name rows. Some may be of another share, and have another priority.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lapidary::shares::{Share, ShareOptions};
use lapidary::{DType, Gpu, Residency, Source, Tensor};

use super::{MIB, device};

fn shares(gpu: &Gpu) -> [Share; 2] {
    [("frame", 1), ("job", -1)].map(|(name, priority)| {
        let share = ShareOptions::guaranteed(0).with_priority(priority);
        gpu.share(name, share).unwrap()
    })
}

/// A source of zeros, and how often it was read.
fn counted() -> (Source, Arc<AtomicU64>) {
    let reads = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&reads);
    let source = Source::reader(move |_, bytes| {
        counter.fetch_add(1, Ordering::Relaxed);
        bytes.fill(0);
        Ok(())
    });
    (source, reads)
}

#[test]
fn rows_are_picked_by_words_of_any_share() {
    let gpu = device(64 * MIB);
    let [frame, job] = shares(&gpu);
    for lender in [&gpu, &job, &frame] {
        let (words, reads) = counted();
        let named = lender.backed(words, &[8], DType::U32).unwrap();
        let named = named.lend_to(&frame).unwrap();
        let table = Source::bytes(vec![1; 4096].into());
        let table = frame.backed(table, &[1024, 1], DType::U32).unwrap();
        let rows = table.index_select(0, &named).unwrap();
        assert_eq!(rows.to_vec::<u32>().unwrap(), [0x0101_0101; 8]);
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_ne!(table.residency(), Residency::Device);
    }
}

/// Makes 4.0 from 1.0 by a function that records something of the other share, too.
fn computed_again(
    frame: &Gpu,
    other: impl Fn(&Tensor) -> lapidary::Result<Tensor> + Send + Sync + 'static,
) -> Tensor {
    let one = frame.ones(&[1024], DType::F32).unwrap();
    let made = (&one + 3.0).unwrap();
    made.recompute_with(&[&one], move |inputs| {
        let made = (&inputs[0] + 3.0)?;
        other(&made)?;
        Ok(made)
    })
    .unwrap();
    made.evict().unwrap();
    assert_eq!(made.residency(), Residency::Backed);
    made
}

#[test]
fn a_function_may_record_commands_of_lower_shares() {
    let gpu = device(64 * MIB);
    let [frame, job] = shares(&gpu);
    let of_job = job.ones(&[1024], DType::F32).unwrap();
    let borrows = {
        let job = job.clone();
        computed_again(&frame, move |made| made.lend_to(&job)?.sum_all())
    };
    let reads_another = computed_again(&frame, move |_| &of_job + 1.0);
    for made in [&borrows, &reads_another] {
        for _ in 0..3 {
            let twice = (made + made).unwrap();
            assert_eq!(twice.to_vec::<f32>().unwrap(), [8.0; 1024]);
            made.evict().unwrap();
        }
    }
}

#[test]
fn steps_of_a_lower_share_come_before_the_command_that_they_are_for() {
    let gpu = device(64 * MIB);
    let [frame, job] = shares(&gpu);
    // The job lends what it computes, and the frame computes from that.
    let lent = computed_again(&job, |made| made.sum_all());
    let loan = lent.lend_to(&frame).unwrap();
    let made = (&loan * 2.0).unwrap();
    made.recompute_with(&[&loan], |inputs| &inputs[0] * 2.0)
        .unwrap();
    for _ in 0..3 {
        for one in [&made, &lent] {
            one.evict().unwrap();
            assert_eq!(one.residency(), Residency::Backed);
        }
        let sum = (&made + 1.0).unwrap();
        let own = frame.full(&[1024], 3.0, DType::F32).unwrap();
        let own = (&own + 1.0).unwrap();
        assert_eq!(sum.to_vec::<f32>().unwrap(), [9.0; 1024]);
        assert_eq!(own.to_vec::<f32>().unwrap(), [4.0; 1024]);
    }
}
