//! A backward from several tensors, and what its gradients give.

use lapidary::grad::{Backprop, Gradients};
use lapidary::{DType, Error, Tensor};

use super::check::{gpu, parameter};

fn elements(tensor: &Tensor) -> Vec<f32> {
    tensor.to_vec().unwrap()
}

#[test]
fn a_backward_from_several_tensors_is_the_sum_of_those_from_each() {
    let gpu = gpu();
    let [w, b] = [[1.0, 2.0], [3.0, 4.0]].map(|values| parameter(&gpu, &values, &[2]));
    let run = || {
        let h = (&w * &b).unwrap();
        // One root leads to another one.
        let y = h.square().unwrap();
        let loss = y.sum_all().unwrap();
        (h, y, loss)
    };
    let seeds = [[1.0_f32, -1.0], [0.5, 2.0]].map(|seed| gpu.tensor(&seed, &[2]).unwrap());
    let (h, y, loss) = run();
    let roots = [
        (&h, Some(&seeds[0])),
        (&loss, None),
        (&y, Some(&seeds[1])),
        (&w, Some(&seeds[0])),
        (&loss, None),
    ];
    let mut expected = Gradients::default();
    for root in roots {
        let one = Backprop::of(&[root]).keep_history();
        one.add_to(&mut expected).unwrap();
    }
    let all = Backprop::of(&roots);
    let recorded = all.clone().record().run().unwrap();
    let got = all.run().unwrap();
    for parameter in [&w, &b] {
        let expected = elements(&expected.get(parameter).unwrap());
        assert_eq!(elements(&got.get(parameter).unwrap()), expected);
        let recorded = recorded.get(parameter).unwrap();
        assert!(recorded.has_grad());
        assert_eq!(elements(&recorded), expected);
    }
    // By hand: the seeds of y and both of the loss meet at h.
    let by_h = [(0.5 + 2.0) * 6.0 + 1.0, (2.0 + 2.0) * 16.0 - 1.0];
    let by_w = [by_h[0] * 3.0 + 1.0, by_h[1] * 4.0 - 1.0];
    assert_eq!(elements(&got.get(&w).unwrap()), by_w);
    // The history was freed once.
    assert!(matches!(loss.backward(), Err(Error::Gradient { .. })));
}

#[test]
fn roots_that_do_not_go_together_are_refused_before_anything_happens() {
    let gpu = gpu();
    let other = super::check::gpu();
    let w = parameter(&gpu, &[1.0, 2.0], &[2]);
    let elsewhere = parameter(&other, &[1.0], &[]);
    let loss = w.sum_all().unwrap();
    let constant = gpu.ones(&[], DType::F32).unwrap();
    let seed = gpu.ones(&[3], DType::F32).unwrap();
    let run = |roots: &[(&Tensor, Option<&Tensor>)]| Backprop::of(roots).run().unwrap_err();
    assert!(matches!(run(&[]), Error::Gradient { .. }));
    assert!(matches!(
        run(&[(&loss, None), (&constant, None)]),
        Error::Gradient { .. }
    ));
    assert!(matches!(
        run(&[(&loss, None), (&w, None)]),
        Error::Shape { .. }
    ));
    assert!(matches!(
        run(&[(&loss, None), (&w, Some(&seed))]),
        Error::Shape { .. }
    ));
    assert!(matches!(
        run(&[(&loss, None), (&elsewhere, None)]),
        Error::Foreign { .. }
    ));
    assert_eq!(
        elements(&loss.backward().unwrap().take(&w).unwrap()),
        [1.0, 1.0]
    );
}

#[test]
fn gradients_are_iterated_in_the_order_of_their_parameters_and_taken() {
    let gpu = gpu();
    let parameters = [1.0, 2.0, 3.0].map(|value| parameter(&gpu, &[value], &[1]));
    let [a, b, c] = &parameters;
    let loss = ((a * b).unwrap() * c).unwrap();
    let mut gradients = loss.backward().unwrap();
    let values =
        |gradients: &Gradients| -> Vec<f32> { gradients.iter().flat_map(elements).collect() };
    assert_eq!(values(&gradients), [6.0, 3.0, 2.0]);
    assert_eq!(gradients.iter().len(), 3);
    assert_eq!((&gradients).into_iter().count(), 3);
    assert_eq!(elements(&gradients.take(b).unwrap()), [3.0]);
    assert!(gradients.take(b).is_none() && gradients.get(b).is_none());
    assert!(gradients.take(&loss).is_none());
    assert_eq!((gradients.len(), values(&gradients)), (2, vec![6.0, 2.0]));
    let rest: Vec<f32> = gradients
        .into_iter()
        .flat_map(|one| elements(&one))
        .collect();
    assert_eq!(rest, [6.0, 2.0]);
}
