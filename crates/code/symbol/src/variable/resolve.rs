//! Makes a plan from an expression.

use tiptoe_event::Access;

use super::expression::{Expression, Name, Operator, Root};
use super::members;
use super::origin::VariableOrigin;
use super::plan::{Plan, Start, Step};
use super::types::{self, Shape, TypeRef};
use super::units::Units;
use super::value::Type;
use super::variables::{MAX_LISTED, Variables};
use super::watch::Watch;
use crate::error::hint;
use crate::error::variable_error::{Damage, DebugGap, VariableError};
use crate::find::SUGGESTIONS;

const MOST_POINTS: usize = 4;

struct Walk<'v, 'd> {
    variables: &'v Variables<'d>,
    expression: &'v Expression,
    start: Start,
    steps: Vec<Step>,
    here: TypeRef,
}

impl Variables<'_> {
    /// Returns a watch's plan.
    pub fn plan(&self, watch: &Watch) -> Result<Plan, VariableError> {
        self.units.budget.refill();
        let expression = &watch.expression;
        let plan = match &expression.root {
            Root::Address(address) => Ok(self.address(*address, watch)),
            Root::Name(name) if watch.access == Access::Execute => self.code(name, expression),
            Root::Name(name) => self.variable(name, expression),
        };
        plan.map_err(|error| match (&self.missing, error) {
            (
                Some(file),
                VariableError::Damaged {
                    what: Damage::MissingFile,
                },
            ) => VariableError::MissingFile {
                name: file.name.clone(),
                remedy: hint::shared_file(&file.name, &file.build_id),
            },
            (_, error) => error,
        })
    }

    fn plain(&self, expression: &Expression, start: Start, size: Option<u64>) -> Plan {
        Plan {
            expression: expression.to_string(),
            start,
            steps: Vec::new(),
            value: Type::unknown(size),
            word: self.image.header().class.word(),
        }
    }

    /// Plans an address, which is a link-time address if the watch names a binary.
    fn address(&self, address: u64, watch: &Watch) -> Plan {
        let start = match watch.binary {
            Some(_) => Start::Module(address),
            None => Start::Absolute(address),
        };
        let size = (watch.access == Access::Execute).then_some(1);
        self.plain(&watch.expression, start, size)
    }

    fn code(&self, name: &Name, expression: &Expression) -> Result<Plan, VariableError> {
        let found = self.image.find(&name.path()).unwrap_or_default();
        let Some(function) = found.first().filter(|_| expression.operators.is_empty()) else {
            let (name, nearest) = (name.path(), self.image.nearest(&name.path(), SUGGESTIONS));
            return Err(VariableError::NoSuchFunction { name, nearest });
        };
        if found.len() > 1 {
            let choices = found.iter().take(MAX_LISTED);
            let shown = |f: &std::borrow::Cow<'_, crate::Function>| {
                f.full_name().unwrap_or_else(|| f.hex())
            };
            return Err(VariableError::Ambiguous {
                name: name.path(),
                choices: choices.map(shown).collect(),
            });
        }
        Ok(self.plain(expression, Start::Module(function.address), Some(1)))
    }

    fn variable(&self, name: &Name, expression: &Expression) -> Result<Plan, VariableError> {
        let error = match self.origin(name) {
            Ok(origin) => return self.plan_operators(&origin, name, expression, 0),
            Err(error) => error,
        };
        for (name, members) in of_go(name, expression) {
            if let Ok(origin) = self.origin(&name) {
                return self.plan_operators(&origin, &name, expression, members);
            }
        }
        Err(error)
    }

    /// Plans the operators. The first `used` belong to a Go variable's name ([`of_go`]).
    fn plan_operators(
        &self,
        origin: &VariableOrigin,
        name: &Name,
        expression: &Expression,
        used: usize,
    ) -> Result<Plan, VariableError> {
        let Some(type_of) = origin.type_of else {
            return match expression.operators.len() == used {
                true => Ok(self.plain(expression, origin.start, origin.symbol_size)),
                false => Err(self.without_type(name, expression, used)),
            };
        };
        let mut walk = Walk {
            variables: self,
            expression,
            start: origin.start,
            steps: Vec::new(),
            here: type_of,
        };
        for (at, operator) in expression.operators.iter().enumerate().skip(used) {
            walk.apply(at, operator)?;
        }
        walk.finish()
    }

    fn without_type(&self, name: &Name, expression: &Expression, used: usize) -> VariableError {
        let (one, whole) = (expression.before(used), expression.before(used + 1));
        let why = match self.hint() {
            Some(hint) => hint,
            None if self.units.is_empty() => DebugGap::File,
            None => DebugGap::Source,
        };
        VariableError::NoType {
            name: name.path(),
            operator: whole.strip_prefix(&one).unwrap_or("*").to_owned(),
            why,
        }
    }
}

/// Returns a Go variable's possible names, each with the number of the expression's `.member`s that belong to the name.
/// For example, all of `main.Counter` may be a name, because Go puts the package before the dot.
fn of_go(name: &Name, expression: &Expression) -> impl Iterator<Item = (Name, usize)> {
    let members = expression
        .operators
        .iter()
        .map_while(|operator| match operator {
            Operator::Dot(member) => Some(member),
            _ => None,
        });
    let plain = name.file.is_none() && !name.is_global && name.parts.len() == 1;
    let members = members.take(if plain { MOST_POINTS } else { 0 });
    let mut text = name.last().to_owned();
    let names = members.map(move |member| {
        text = format!("{text}.{member}");
        Name {
            file: None,
            is_global: false,
            parts: vec![text.clone()],
        }
    });
    names.zip(1..)
}

impl<'v, 'd> Walk<'v, 'd> {
    fn units(&self) -> &'v Units<'d> {
        &self.variables.units
    }

    fn apply(&mut self, at: usize, operator: &Operator) -> Result<(), VariableError> {
        self.refer(at)?;
        match operator {
            Operator::Dot(member) | Operator::Arrow(member) => self.member(at, member),
            Operator::Index(index) => self.element(at, *index),
            Operator::Deref => self.element(at, 0),
        }
    }

    fn refer(&mut self, at: usize) -> Result<(), VariableError> {
        if let Shape::Reference(target) = types::shape(self.units(), self.here)? {
            self.load(at, target);
        }
        Ok(())
    }

    fn load(&mut self, at: usize, target: TypeRef) {
        let pointer = self.expression.before(at);
        self.steps.push(Step::Load { pointer });
        self.here = target;
    }

    fn add(&mut self, offset: i64) {
        match self.steps.last_mut() {
            Some(Step::Add(sum)) => *sum = sum.wrapping_add(offset),
            _ if offset == 0 => {}
            _ => self.steps.push(Step::Add(offset)),
        }
    }

    fn type_name(&self) -> Result<String, VariableError> {
        types::name(self.units(), self.here)
    }

    fn member(&mut self, at: usize, wanted: &str) -> Result<(), VariableError> {
        let whole = self.here;
        let mut shape = types::shape(self.units(), whole)?;
        if let Shape::Pointer(target)
        | Shape::Array {
            element: target, ..
        } = shape
        {
            // As in gdb, `.` and `->` are the same, and an array means its first element.
            if matches!(shape, Shape::Pointer(_)) {
                self.load(at, target);
            }
            shape = types::shape(self.units(), target)?;
        }
        let Shape::Compound(compound) = shape else {
            return Err(VariableError::NoMembers {
                expression: self.expression.before(at),
                type_name: types::name(self.units(), whole)?,
            });
        };
        let member = members::find(self.units(), &compound, wanted)?;
        if let Some(bits) = member.bits {
            return Err(VariableError::BitField {
                expression: self.expression.before(at + 1),
                bits,
                address: self.link_time_address(),
            });
        }
        self.add(member.offset.cast_signed());
        self.here = member.type_of;
        Ok(())
    }

    fn link_time_address(&self) -> Option<u64> {
        let Start::Module(start) = self.start else {
            return None;
        };
        match self.steps[..] {
            [] => Some(start),
            [Step::Add(offset)] => Some(start.wrapping_add_signed(offset)),
            _ => None,
        }
    }

    fn element(&mut self, at: usize, index: i64) -> Result<(), VariableError> {
        let (element, count) = match types::shape(self.units(), self.here)? {
            Shape::Pointer(target) => {
                self.load(at, target);
                (target, None)
            }
            Shape::Array { element, count } => (element, count),
            _ => {
                return Err(VariableError::NotAPointer {
                    expression: self.expression.before(at),
                    type_name: self.type_name()?,
                });
            }
        };
        // At a structure's end, an array of length 0 or 1 may have more elements.
        if let Some(count) = count.filter(|&count| count > 1)
            && !u64::try_from(index).is_ok_and(|index| index < count)
        {
            return Err(VariableError::OutOfBounds {
                expression: self.expression.before(at),
                count,
                index,
            });
        }
        self.here = element;
        if index != 0 {
            let size = types::size(self.units(), element)?;
            let size = size.and_then(|size| i64::try_from(size).ok());
            let Some(offset) = size.and_then(|size| size.checked_mul(index)) else {
                return Err(VariableError::NoSize {
                    expression: self.expression.before(at + 1),
                    type_name: self.type_name()?,
                });
            };
            self.add(offset);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Plan, VariableError> {
        self.refer(self.expression.operators.len())?;
        let value = Type {
            name: self.type_name()?,
            size: types::size(self.units(), self.here)?,
            kind: types::kind(self.units(), self.here)?,
        };
        let steps = self.steps.into_iter().filter(|step| *step != Step::Add(0));
        Ok(Plan {
            expression: self.expression.to_string(),
            start: self.start,
            steps: steps.collect(),
            value,
            word: self.variables.image.header().class.word(),
        })
    }
}
