//! Map groups: several results of element-wise programs in one kernel. This module owns what a group is made of and whether it is sound; how
//! its parts are spread over workgroups is `tuning::maps`' choice.
//!
//! A part is a program over an iteration space of its own. It may store several of its values, each into a view of a result: parts that write to
//! different views of one result assemble it.

use smallvec::SmallVec;

use super::layout::{Layout, View};
use super::{OutputView, Program, Type};
use crate::error::{Error, Result};

/// The most parts of a group.
pub const MAX_MAP_PARTS: usize = 16;

/// Element-wise programs, and the results that they write.
#[derive(Clone, Debug)]
pub struct MapGroup {
    /// The programs with what they store.
    pub parts: Vec<MapPart>,
    /// The type of each result, and how many elements it has.
    pub results: Vec<(Type, u64)>,
}

/// A program without reduction, and the values that it stores.
#[derive(Clone, Debug, Hash)]
pub struct MapPart {
    /// The program. It has no output of its own.
    pub program: Program,
    /// What is stored.
    pub stores: SmallVec<[MapStore; 2]>,
}

/// A value that is stored.
#[derive(Clone, Debug, Hash)]
pub struct MapStore {
    /// The value's index among inputs and nodes.
    pub value: usize,
    /// The position of the result among those of the group.
    pub result: usize,
    /// Where the value of each index goes.
    pub view: OutputView,
}

impl MapGroup {
    /// The layouts of the parts of a sound group. Fails for one that is not.
    pub fn check(&self) -> Result<Vec<Layout>> {
        if !(1..=MAX_MAP_PARTS).contains(&self.parts.len()) {
            return Err(Error::Argument("parts: expected one to sixteen".into()));
        }
        self.parts.iter().map(|part| self.check_part(part)).collect()
    }

    fn check_part(&self, part: &MapPart) -> Result<Layout> {
        let argument = |text: &'static str| Err(Error::Argument(text.into()));
        let MapPart { program, stores } = part;
        program.check()?;
        if program.reduced_axes().is_some() || program.output.is_some() || stores.is_empty() {
            return argument("parts: a part stores element-wise values");
        }
        let values = program.inputs.len() + program.nodes.len();
        for MapStore { value, result, view } in stores {
            let size = self.results.get(*result).map(|&(ty, _)| ty.size());
            if *value >= values || size != Some(program.type_of(*value).size()) {
                return argument("stores: expected a value of its result's size");
            }
            if view.strides.len() != program.shape.len() || !view.dynamic_offsets.is_empty() {
                return argument("stores: one stride is needed for each axis of the iteration space");
            }
        }
        let views: SmallVec<[OutputView; 2]> = stores.iter().map(|store| store.view.clone()).collect();
        let layout = Layout::with_outputs(program, None, &views)?;
        let lengths = &layout.required_lengths[program.inputs.len()..];
        if stores.iter().zip(lengths).any(|(store, &length)| length > self.results[store.result].1) {
            return Err(Error::SizeMismatch);
        }
        Ok(layout)
    }
}

impl MapPart {
    /// The views of what is stored, in a layout of the part.
    pub fn stored<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (&'a MapStore, &'a View)> {
        self.stores.iter().zip(&layout.views[layout.views.len() - self.stores.len()..])
    }

    /// The part without what are parameters of its kernel.
    pub fn without_parameters(&self) -> Self {
        let store = |store: &MapStore| MapStore { view: OutputView::default(), ..*store };
        Self { program: self.program.without_parameters(), stores: self.stores.iter().map(store).collect() }
    }
}
