"""Images: from what people give, as a file or an array, to what a model is given and the patches that it sees."""

from whyformer.images.reading import images_of as images_of
from whyformer.images.reading import is_image as is_image
from whyformer.images.reading import is_stacked as is_stacked
from whyformer.images.reading import is_stacked_for as is_stacked_for
from whyformer.images.reading import read_again as read_again
