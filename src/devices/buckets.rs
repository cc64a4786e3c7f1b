//! Parameters in buckets, whose gradients travel together.

use lapidary_core::{Error, Result};

/// The parameters of each bucket. A backward makes the gradients of the last layers first, so the
/// first bucket has the last parameters. (Li et al., *PyTorch Distributed*, 2020.)
#[derive(Debug)]
pub struct Buckets {
    buckets: Vec<Vec<usize>>,
    /// The bucket of each parameter.
    of: Vec<usize>,
}

impl Buckets {
    /// A bucket is full when its gradients have this many bytes.
    pub fn new(sizes_bytes: &[u64], bucket_bytes: u64) -> Result<Self> {
        if bucket_bytes == 0 {
            return Err(Error::Option {
                option: "bucket_bytes",
                reason: "a bucket of 0 bytes has no room for a gradient".into(),
            });
        }
        let mut buckets: Vec<Vec<usize>> = Vec::new();
        let mut of = vec![0; sizes_bytes.len()];
        let mut filled_bytes = bucket_bytes;
        for (parameter, size_bytes) in sizes_bytes.iter().enumerate().rev() {
            if filled_bytes >= bucket_bytes {
                buckets.push(Vec::new());
                filled_bytes = 0;
            }
            of[parameter] = buckets.len() - 1;
            if let Some(bucket) = buckets.last_mut() {
                bucket.push(parameter);
            }
            filled_bytes = filled_bytes.saturating_add(*size_bytes);
        }
        Ok(Buckets { buckets, of })
    }

    /// The parameters of each bucket, the first to be full first.
    pub fn all(&self) -> &[Vec<usize>] {
        &self.buckets
    }

    /// The bucket of a parameter.
    pub fn of(&self, parameter: usize) -> usize {
        self.of[parameter]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_the_last_parameters_first_and_end_when_they_are_full() {
        let sizes_bytes = [5, 1, 1, 9, 2, 2];
        for (bucket_bytes, expected) in [
            (4, vec![vec![5, 4], vec![3], vec![2, 1, 0]]),
            (
                1,
                vec![vec![5], vec![4], vec![3], vec![2], vec![1], vec![0]],
            ),
            (u64::MAX, vec![vec![5, 4, 3, 2, 1, 0]]),
        ] {
            let buckets = Buckets::new(&sizes_bytes, bucket_bytes).unwrap();
            assert_eq!(buckets.all(), expected);
            for parameter in 0..sizes_bytes.len() {
                assert!(expected[buckets.of(parameter)].contains(&parameter));
            }
        }
        assert!(Buckets::new(&sizes_bytes, 0).is_err());
    }
}
