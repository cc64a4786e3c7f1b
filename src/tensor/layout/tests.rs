//! Layouts against a model that holds, for every index, the number of its element.
