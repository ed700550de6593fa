from django.contrib import admin
from django.urls import path

from pulse.django.admin import JobAdmin
from pulse.django.models import Job

staff = admin.AdminSite("staff")
staff.register(Job, JobAdmin)

urlpatterns = [path("admin/", admin.site.urls), path("staff/", staff.urls)]
