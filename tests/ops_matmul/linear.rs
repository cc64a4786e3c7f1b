//! Linear layers of integers.

use lapidary::DType;

use crate::devices::gpus;

#[test]
fn linear_takes_integers_with_a_bias_as_without() {
    for (name, gpu) in gpus() {
        let x = gpu
            .tensor(&[1_i32, -2, 3, 4, 5, i32::MAX], &[2, 3])
            .unwrap();
        let weight = gpu.tensor(&[1_i32, 0, 2, 3, 1, -1], &[2, 3]).unwrap();
        let bias = gpu.tensor(&[10_i32, -1], &[2]).unwrap();
        let plain = x.linear(&weight, None).unwrap().to_vec::<i32>().unwrap();
        let wanted = [
            7,
            -2,
            4_i32.wrapping_add(i32::MAX).wrapping_add(i32::MAX),
            17 - i32::MAX,
        ];
        assert_eq!(plain, wanted, "{name}");
        let with = x
            .linear(&weight, Some(&bias))
            .unwrap()
            .to_vec::<i32>()
            .unwrap();
        let biases = [10, -1, 10, -1];
        let wanted: Vec<i32> = (wanted.iter().zip(biases))
            .map(|(&x, bias): (&i32, i32)| x.wrapping_add(bias))
            .collect();
        assert_eq!(with, wanted, "{name}");
        let floats = bias.cast(DType::F32).unwrap();
        let refused = x.linear(&weight, Some(&floats)).unwrap_err().to_string();
        assert!(refused.starts_with("linear: "), "{refused}");
        let refused = x.linear(&weight, Some(&x)).unwrap_err().to_string();
        assert!(refused.starts_with("linear: "), "{refused}");
    }
}
