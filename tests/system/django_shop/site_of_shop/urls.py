"""The addresses of the project."""

from django.urls import path
from orders import views

urlpatterns = [
    path("buy", views.buy),
    path("abuy", views.abuy),
    path("status/<job>", views.status),
]
