//! Weights in fewer bits give nearly the same vectors.

use embed::{Model, Precision, places};
use lapidary::{Gpu, Options};

use crate::golden::cosine;
use crate::setup;

/// Encodes with weights of this precision: the least cosine with PyTorch's vectors, and the bytes
/// of the weights.
fn worst(precision: Precision) -> (f64, u64) {
    let gpu = Gpu::open(Options::from_env().unwrap()).unwrap();
    let model = Model::open_as(&gpu, &places::model_folder(), precision).unwrap();
    let (ours, theirs) = (setup::embed(&model, usize::MAX), setup::vectors());
    assert_eq!(ours.vectors.len(), theirs.len());
    let pairs = (ours.vectors.chunks(ours.width)).zip(theirs.chunks(ours.width));
    let cosines: Vec<f64> = pairs.map(|(ours, theirs)| cosine(ours, theirs)).collect();
    assert!(
        cosines.iter().all(|cosine| cosine.is_finite()),
        "{cosines:?}"
    );
    let least = cosines.into_iter().fold(1.0, f64::min);
    (least, model.encoder.weights_bytes())
}

#[test]
fn smaller_weights_cost_little_of_the_vectors() {
    if !setup::is_there() {
        return;
    }
    // Each with its least cosine, and the most bytes per number of the matrices.
    let cases = [
        (Precision::F16, 0.9999, 2.0),
        (Precision::Int8(None), 0.995, 1.02),
        (Precision::Int8(Some(64)), 0.995, 1.07),
    ];
    let (_, model) = setup::open(None);
    let numbers = (model.encoder.weights_bytes() / 4) as f64;
    for (precision, floor, number_bytes) in cases {
        let (cosine, bytes) = worst(precision);
        println!("{precision}: {bytes} bytes, worst cosine {cosine:.6}");
        assert!(cosine >= floor, "{precision}: {cosine}, at least {floor}");
        // Not quite half of the numbers are in the word table, which int8 keeps in f16.
        let most = numbers * (number_bytes + 2.0_f64.max(number_bytes)) / 2.0 * 1.06;
        assert!(
            (bytes as f64) < most,
            "{precision}: {bytes} bytes, {most} at the most"
        );
    }
}
