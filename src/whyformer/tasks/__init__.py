"""What a model says: one module for each task; `task` has what they share, and `task_of` finds the task of a model."""

from whyformer.tasks.classification import Classification as Classification
from whyformer.tasks.fill_mask import MaskedWord as MaskedWord
from whyformer.tasks.multiple_choice import MultipleChoice as MultipleChoice
from whyformer.tasks.next_token import NextToken as NextToken
from whyformer.tasks.question_answering import Answers as Answers
from whyformer.tasks.regression import Regression as Regression
from whyformer.tasks.similarity import Similarity as Similarity
from whyformer.tasks.task import TASKS as TASKS
from whyformer.tasks.task import Asked as Asked
from whyformer.tasks.task import ExampleOutputs as ExampleOutputs
from whyformer.tasks.task import ModelOutputs as ModelOutputs
from whyformer.tasks.task import Task as Task
from whyformer.tasks.task import register as register
from whyformer.tasks.task import said_by as said_by
from whyformer.tasks.task import task_of as task_of
from whyformer.tasks.token_classification import TokenLabels as TokenLabels
from whyformer.tasks.token_classification import Tokens as Tokens
