"""What a model says: one module for each task; `task` has what they share, and `task_of` finds the task of a model."""

from whyformer.tasks.answers import Answers as Answers
from whyformer.tasks.choice import Choice as Choice
from whyformer.tasks.classes import Classes as Classes
from whyformer.tasks.masked_word import MaskedWord as MaskedWord
from whyformer.tasks.next_token import NextToken as NextToken
from whyformer.tasks.score import Score as Score
from whyformer.tasks.similarity import Similarity as Similarity
from whyformer.tasks.task import TASKS as TASKS
from whyformer.tasks.task import Asked as Asked
from whyformer.tasks.task import ExampleOutputs as ExampleOutputs
from whyformer.tasks.task import Outputs as Outputs
from whyformer.tasks.task import Task as Task
from whyformer.tasks.task import register as register
from whyformer.tasks.task import said_by as said_by
from whyformer.tasks.task import task_of as task_of
from whyformer.tasks.token_labels import TokenLabels as TokenLabels
from whyformer.tasks.tokens import Tokens as Tokens
