//! The kernels over the sorted rows: what they are given, and their GLSL around `shaders/lib/scatter.glsl`.

use smallvec::SmallVec;

use super::{OpenSums, ScatterShape};
use crate::device::Capabilities;
use crate::graph::Params;
use crate::kernels::KernelSpec;
use crate::memory::Allocation;
use crate::program::Type;
use crate::program::emit::{MAX_PARTS, assign, convert, head, load, of_compute, stored, vec4_of};
use crate::program::types::Compute;
use crate::tuning::scatter::{SCATTER_THREADS, SUM_REACH};

/// What a kernel over the sorted rows does.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum ScatterStage {
    /// Writes the last row of each target.
    Put,
    /// Adds the rows of each target up, by chunks.
    Sums,
    /// Adds the sums up that chunks left open.
    Join,
}

#[derive(Hash)]
pub(super) struct ScatterKernel {
    pub stage: ScatterStage,
    /// The type of the result.
    pub ty: Type,
    pub target: Type,
    pub updates: Type,
    /// Neighbours in a row that a thread takes.
    pub columns: u64,
    /// Axes that the index of a target runs over, and axes within a slice.
    pub indexed_rank: usize,
    pub slice_rank: usize,
    /// Rows that a thread loads before it uses the first.
    pub in_flight: u64,
    /// What a sum is accumulated in.
    pub parts: SmallVec<[Compute; MAX_PARTS]>,
    pub index64: bool,
}

#[derive(Clone, Copy)]
pub(super) struct ScatterArgs<'a> {
    pub shape: &'a ScatterShape,
    /// Rows of this pass: of updates, or of open sums.
    pub rows: u64,
    /// Where each row goes, in that order.
    pub targets: &'a Allocation,
    /// Which row of the updates each of these is.
    pub order: &'a Allocation,
    pub updates: &'a Allocation,
    /// The elements that sums are added to. Only the thread that writes an element uses it.
    pub target: &'a Allocation,
    pub result: &'a Allocation,
    /// Rows that a thread adds up.
    pub chunk: u64,
    /// The open sums that are added up.
    pub from: Option<&'a OpenSums>,
    /// The open sums that are left.
    pub to: Option<&'a OpenSums>,
}

impl ScatterKernel {
    fn threads(&self, args: &ScatterArgs) -> u64 {
        let each = if self.stage == ScatterStage::Put { self.in_flight } else { args.chunk };
        args.rows.div_ceil(each) * self.vectors(args)
    }

    /// Threads of a row.
    fn vectors(&self, args: &ScatterArgs) -> u64 {
        args.shape.width / self.columns
    }
}

impl KernelSpec for ScatterKernel {
    type Args<'a> = ScatterArgs<'a>;

    fn params<'a>(&self, args: &ScatterArgs<'a>, params: &mut Params<'a>) {
        let shape = args.shape;
        params.read(args.from.map_or(args.targets, |open| &open.targets), "uint", "targets");
        params.extents(self.index64, [("threads", self.threads(args)), ("rows", args.rows)]);
        params.write(args.result, self.ty.storage(), "result");
        if self.stage != ScatterStage::Join {
            params.read(args.order, "uint", "order");
            params.read(args.updates, self.updates.storage(), "updates");
        }
        if self.stage != ScatterStage::Put {
            params.read(args.target, self.target.storage(), "target");
        }
        for (i, part) in self.parts.iter().enumerate() {
            if let Some(from) = args.from {
                params.read(&from.sums[i], part.glsl(), ("from", i));
            }
            if let Some(to) = args.to {
                params.write(&to.sums[i], part.glsl(), ("to", i));
            }
        }
        if let Some(to) = args.to {
            params.write(&to.targets, "uint", "to_targets");
        }
        let extents = [("width", shape.width), ("vectors", self.vectors(args)), ("chunk", args.chunk)];
        params.extents(self.index64, extents);
        for (axes, name) in [(&shape.indexed, "indexed"), (&shape.slice, "slice")] {
            for (k, &(dim, stride)) in axes.iter().enumerate() {
                params.extent(dim, self.index64, (name, "_dim", k));
                params.extent(stride, self.index64, (name, "_stride", k));
            }
        }
    }

    fn groups(&self, args: &ScatterArgs) -> u64 {
        self.threads(args).div_ceil(SCATTER_THREADS)
    }

    fn source(&self, caps: &Capabilities, parameters: &str) -> String {
        let types = [self.ty, self.target, self.updates];
        let mut storages: SmallVec<[&str; 8]> = types.iter().map(|ty| ty.storage()).collect();
        storages.push("uint");
        storages.extend(self.parts.iter().map(|part| part.glsl()));
        let mut computes: SmallVec<[Compute; 8]> = types.iter().map(|ty| ty.compute()).collect();
        computes.extend_from_slice(&self.parts);
        format!(
            "{head}\
             #define {stage}\n\
             #define THREADS {SCATTER_THREADS}\n#define IN_FLIGHT {in_flight}u\n#define COLUMNS {columns}u\n\
             #define REACH {SUM_REACH}u\n#define LAST_WINS false\n\
             #include \"lib/reduce.glsl\"\n\
             {complex}{offset}{values}\
             layout(local_size_x = {SCATTER_THREADS}) in;\n\
             #include \"lib/scatter.glsl\"\n",
            head = head(caps, self.index64, &storages, &computes, parameters),
            stage = match self.stage {
                ScatterStage::Put => "PUT",
                ScatterStage::Sums => "SUMS",
                ScatterStage::Join => "JOIN",
            },
            in_flight = self.in_flight,
            columns = self.columns,
            complex =
                if types.iter().any(|ty| ty.is_complex()) { "#include \"lib/complex/reduce.glsl\"\n" } else { "" },
            offset = self.offset(),
            values = self.values(),
        )
    }
}

impl ScatterKernel {
    /// Where an element of a slice is.
    fn offset(&self) -> String {
        let mut text = String::from("IDX offset_of(IDX target, IDX k) {\n  IDX offset = 0;\n");
        for (rank, name, flat) in [(self.indexed_rank, "indexed", "target"), (self.slice_rank, "slice", "k")] {
            for k in (0..rank).rev() {
                let (dim, stride) = (format!("p.{name}_dim{k}"), format!("p.{name}_stride{k}"));
                text += &match k {
                    0 => format!("  offset += {flat} * {stride};\n"),
                    _ => format!("  offset += {flat} % {dim} * {stride};\n  {flat} /= {dim};\n"),
                };
            }
        }
        text + "  return offset;\n}\n"
    }

    /// The type VALUE that elements are handled in, how they are read and written, and what sums are made of.
    fn values(&self) -> String {
        let put = self.stage == ScatterStage::Put;
        let ty = if put { self.updates } else { of_compute(self.parts[0]) };
        let glsl = ty.compute().glsl();
        // Integers are brought into the result's range before they are added, as in sums.
        let narrows = !put && !self.ty.is_float() && !self.ty.is_complex();
        let value = |read: (String, Type)| {
            let read = if narrows { (convert(read, self.ty), self.ty) } else { read };
            convert(read, ty)
        };
        let mut text = format!("#define VALUE {glsl}\n");
        text += &match self.columns {
            1 => format!(
                "void write(IDX offset, VALUE x[1]) {{ {}; }}\n",
                assign(self.ty, "result", "offset", ("x[0]".into(), ty)),
            ),
            _ => {
                let values: Vec<_> = (0..4).map(|c| stored(self.ty, (format!("x[{c}]"), ty))).collect();
                format!(
                    "void write(IDX offset, VALUE x[4]) {{ SET_VEC4({storage}, p.result, offset / 4u, {}({})); }}\n",
                    vec4_of(self.ty.storage()),
                    values.join(", "),
                    storage = self.ty.storage(),
                )
            }
        };
        // What is stored is kept as it is until it is used: it takes fewer registers.
        let loaded = |of: Type, stored: &str, vector: &str, element: &str, name: &str, at: (&str, &str)| {
            let (storage, (arguments, index)) = (of.storage(), at);
            match self.columns {
                1 => format!(
                    "#define {stored} {storage}\n\
                     {stored} {vector}({arguments}) {{ return AT({storage}, p.{name}, {index}); }}\n\
                     VALUE {element}({stored} x, uint c) {{ return {}; }}\n",
                    value((load(of, "x"), of)),
                ),
                _ => format!(
                    "#define {stored} {vec4}\n\
                     {stored} {vector}({arguments}) {{ return LOAD_VEC4({storage}, p.{name}, {index}); }}\n\
                     VALUE {element}({stored} x, uint c) {{ return {}; }}\n",
                    value((load(of, "x[c]"), of)),
                    vec4 = vec4_of(storage),
                ),
            }
        };
        if self.stage != ScatterStage::Join {
            let at = ("uint row, IDX v", "IDX(row) * p.vectors + v");
            text += &loaded(self.updates, "UPDATES", "updates_at", "update_of", "updates", at);
        }
        if !put {
            let at = ("IDX offset", "offset / COLUMNS");
            text += &loaded(self.target, "ELEMENTS", "elements_at", "element_of", "target", at);
            text += &format!(
                "#define PARTS {parts}\n#define PART(b, i) AT({glsl}, b, i)\n#define ZERO {zero}\n",
                parts = self.parts.len(),
                zero = ty.compute().literal(0),
            );
        }
        text
    }
}
