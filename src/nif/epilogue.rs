//! Contractions with and without an epilogue: their operands, their cache key and their results.

use rustler::Term;

use super::graphs::KeyTerms;
use super::program::{
    InputOperands, InputTerms, add_inputs, add_nodes, input_key, input_operands, input_terms, operands as input_list,
};
use super::*;
use crate::graph::{Context, Operand};
use crate::kernels::fusion::{Epilogue, EpilogueResults};
use crate::memory::Blocking;
use crate::program::epilogue::EpilogueProgram;
use crate::program::{Input, Program, Source, Type, broadcast_strides};

/// The terms of an epilogue: a program with the inputs but for the element's, the index of that input, and whether the elements are
/// kept.
pub(super) struct EpilogueTerms<'a> {
    nodes: Term<'a>,
    shape: Term<'a>,
    inputs: SmallVec<[InputTerms<'a>; 4]>,
    element: Term<'a>,
    keeps_element: Term<'a>,
}

/// One result, or two as a tuple.
pub(super) enum ContractionRefs {
    Result(BufferRef),
    ResultAndElements(BufferRef, BufferRef),
}

impl Encoder for ContractionRefs {
    fn encode<'a>(&self, env: Env<'a>) -> Term<'a> {
        match self {
            Self::Result(result) => result.encode(env),
            Self::ResultAndElements(result, elements) => (result, elements).encode(env),
        }
    }
}

impl<'a> EpilogueTerms<'a> {
    pub fn from_term(term: Term<'a>) -> Result<Self> {
        let (nodes, inputs, shape, element, keeps_element): (Term, Term, Term, Term, Term) =
            term.decode().map_err(|_| wrong("epilogue", "{nodes, inputs, shape, index of an input, boolean}"))?;
        Ok(Self { nodes, shape, inputs: input_terms(inputs)?, element, keeps_element })
    }

    /// The inputs but for the element.
    pub fn inputs(&self) -> &[InputTerms<'a>] {
        &self.inputs
    }

    pub fn key(&self, key: &mut KeyTerms<'a>) {
        key.extend([self.nodes, self.shape, self.element, self.keeps_element]);
        input_key(key, &self.inputs, self.shape);
    }

    /// The program, whose element is of type `ty`.
    pub fn program(&self, ty: Type) -> Result<EpilogueProgram> {
        let mut program = Program::over(shape_arg(self.shape, "shape")?);
        add_inputs(&self.inputs, self.shape, &mut program)?;
        let element = size_arg(self.element, "epilogue")? as usize;
        if element > program.inputs.len() {
            return Err(wrong("epilogue", "the index of an input"));
        }
        let strides = broadcast_strides(&program.shape, &program.shape).ok_or(Error::SizeMismatch)?;
        program.inputs.insert(element, Input { ty, source: Source::View { offset: 0, strides } });
        add_nodes(self.nodes, &mut program)?;
        EpilogueProgram::new(program, element, bool_arg(self.keeps_element, "epilogue")?)
    }
}

/// A contraction of what is in these operands, with results of the type `out_type`; `key` are its other terms. `call` computes it with an
/// epilogue or without.
pub(super) fn run_contraction<'a>(
    out_type: Term<'a>,
    key: &[Term<'a>],
    contracted: &[Operand],
    epilogue: Option<EpilogueTerms<'a>>,
    blocking: Blocking,
    call: impl FnOnce(&Context, Type, Option<&Epilogue>) -> Attempt<EpilogueResults>,
) -> Attempt<ContractionRefs> {
    let env = out_type.get_env();
    let values = epilogue.as_ref().map_or(Ok(InputOperands::new()), |terms| input_operands(&terms.inputs))?;
    let others = input_list(&values, contracted.len());
    let mut operands: SmallVec<[Operand; 8]> = SmallVec::new();
    operands.extend_from_slice(contracted);
    operands.extend_from_slice(&others);
    let mut key = KeyTerms::from_slice(key);
    key.push(out_type);
    let Some(terms) = epilogue else {
        let call = |cx: &Context| Ok([call(cx, type_arg(out_type, "out_type")?, None)?.result]);
        let [result] = graphs::run(env, key, &operands, blocking, call)?;
        return Ok(ContractionRefs::Result(result.into()));
    };
    terms.key(&mut key);
    let with_epilogue = |cx: &Context| {
        let ty = type_arg(out_type, "out_type")?;
        let epilogue = Epilogue { program: terms.program(ty)?, operands: &others };
        call(cx, ty, Some(&epilogue))
    };
    if !bool_arg(terms.keeps_element, "epilogue")? {
        let [result] = graphs::run(env, key, &operands, blocking, |cx| Ok([with_epilogue(cx)?.result]))?;
        return Ok(ContractionRefs::Result(result.into()));
    }
    let [result, elements] = graphs::run(env, key, &operands, blocking, |cx| {
        let EpilogueResults { result, elements } = with_epilogue(cx)?;
        Ok([result, elements.ok_or(Error::Invalid("an epilogue that keeps no elements".into()))?])
    })?;
    Ok(ContractionRefs::ResultAndElements(result.into(), elements.into()))
}
